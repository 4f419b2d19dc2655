"""Check the versions of software, which must be alike on all hosts, and the features of ZeroMQ."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

import zmq

from ringcast.commands.doctor.finding import Finding, fail, ok, warn
from ringcast.control import version
from ringcast.protocol.compiled import ASKED, NO_PLATFORM, NOT_INSTALLED

Versions = Mapping[str, str]
# ringcast refuses to mix its versions, and other versions of Python and numpy may not read a pickle.
_MUST_BE_EQUAL = {"ringcast": fail, "python": fail, "numpy": warn, "pyzmq": warn}


def read() -> dict[str, str]:
    """Return the versions of this installation; Python's without the last number, which makes no difference."""
    return {
        "ringcast": version(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": metadata.version("numpy"),
        "pyzmq": f"{zmq.__version__} (libzmq {zmq.zmq_version()})",
    }


def judge_zeromq(curve: bool, ipc: bool) -> Finding:
    """Judge the features of ZeroMQ."""
    missing = [name for name, there in (("CURVE", curve), ("ipc", ipc)) if not there]
    if missing:
        fix = "install a pyzmq with all of libzmq: pip install --force-reinstall --only-binary pyzmq pyzmq"
        return fail("ZeroMQ", f"libzmq was built without {' and '.join(missing)}", fix)
    return ok("ZeroMQ", "has CURVE and ipc")


def check_zeromq() -> Finding:
    """Check the features of this machine's ZeroMQ."""
    return judge_zeromq(bool(zmq.has("curve")), bool(zmq.has("ipc")))


def judge_build(reason: str) -> Finding:
    """Judge how small messages are sent, and why not by the compiled part."""
    name = "small messages"
    if reason in ("", ASKED, NO_PLATFORM):
        return ok(name, f"by Python: {reason}" if reason else "by the compiled part")
    fix = "install a C compiler and Python's headers (Debian: gcc, python3-dev), and ringcast again"
    return warn(name, f"by Python: {reason}", fix if reason == NOT_INSTALLED else "install ringcast again")


def compare(hosts: Mapping[str, Versions]) -> list[Finding]:
    """Compare the versions of all hosts."""
    findings = []
    for name, differing in _MUST_BE_EQUAL.items():
        versions = {host: told.get(name, "none") for host, told in hosts.items()}
        if len(set(versions.values())) <= 1:
            findings.append(ok(name, next(iter(versions.values()), "none")))
            continue
        text = ", ".join(f"{host} has {number}" for host, number in versions.items())
        findings.append(differing(name, text, "install the same version on all hosts"))
    return findings

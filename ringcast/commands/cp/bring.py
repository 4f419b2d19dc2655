"""Bring ringcast to hosts that lack it, for the time of a copy: they need ssh, tar and the same Python, and no more.

The packages of this Python that ringcast needs go to each host as one archive, into a new directory of its own. The
command that has unpacked it there waits until its connection ends, whatever ends it, and then removes the directory.
"""

from __future__ import annotations

import gzip
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.commands.cp.dialog import Dialog
from ringcast.config.worker import start_timeout
from ringcast.net.ssh import SSH, ssh_argv

PYTHON = "RINGCAST_BROUGHT_PYTHON"  # the variable by which a rank on such a host finds Python
_VERSION = "{}.{}".format(*sys.version_info)
_LEFT_OUT = {".a", ".c", ".h", ".pxd", ".pyi", ".lib"}  # files that no running program needs
_LEVEL = 1  # of compression: links are faster than better ones
_END = 10.0  # seconds in which the hosts may remove their directories

_PLACED, _UNPACKED = "ringcast-place=", "ringcast-unpacked"  # in its lines: a shell may print some of its own
_CHECK = 'import sys; raise SystemExit("%d.%d" % sys.version_info[:2] != sys.argv[1])'
# `head` reads no more than the archive, so that what follows it is the end of the connection.
_KEEPER = """
umask 077
here=$(uname -sm)
[ "$here" = "$SYSTEM" ] || { echo "it is $here, and this host $SYSTEM" >&2; exit 1; }
for name in python$VERSION python3; do
    python=$(command -v $name) && "$python" -c "$CHECK" $VERSION && break
    python=
done
[ -n "$python" ] || { echo "no Python $VERSION there (python$VERSION, or python3)" >&2; exit 1; }
place=$(mktemp -d "${TMPDIR:-/tmp}/ringcast-XXXXXXXX") || exit 1
trap 'rm -rf "$place"' EXIT
trap 'exit 1' HUP INT TERM
echo "$PLACED$place $python"
head -c $SIZE | tar -xzf - -C "$place" || exit 1
echo "$UNPACKED"
cat > /dev/null
"""


class BringError(Exception):
    """Hosts that cannot take ringcast, each with the reason."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        super().__init__(", ".join(hosts))
        self.hosts = hosts


@dataclass(frozen=True, slots=True)
class _Kept:
    """A directory with ringcast on a host, and the command that keeps it."""

    host: str
    process: subprocess.Popen[bytes]
    place: str
    python: str


@contextmanager
def brought(hosts: Sequence[str], rsh_agent: str) -> Iterator[str]:
    """Bring ringcast to these hosts; within the block, the --rsh-agent that starts it there is the value.

    Raises:
        BringError: some host cannot take it, or has not answered for RINGCAST_START_TIMEOUT seconds.
        ConfigError: that is no number.
    """
    starter, needed, limit = shlex.split(rsh_agent) if rsh_agent else SSH, _needed(), start_timeout()
    if unknown := next((each.name for each in needed if each.files is None), None):
        why = f"ringcast cannot be brought there: nothing says which files {unknown} has here (it has no RECORD)"
        raise BringError(dict.fromkeys(hosts, why))
    with ExitStack() as stack:
        archive = stack.enter_context(TemporaryFile())
        _pack(archive, needed)
        with ThreadPoolExecutor(max(len(hosts), 1)) as pool:
            begun = [pool.submit(_bring, host, starter, archive.fileno(), limit) for host in hosts]
            found = [each.result() for each in begun]
        kept = [each for each in found if isinstance(each, _Kept)]
        stack.callback(_remove, kept)
        if wrong := {host: each for host, each in zip(hosts, found, strict=True) if isinstance(each, str)}:
            raise BringError(wrong)
        yield _agent(kept, starter)


def worker_of(module: str) -> list[str]:
    """Return the command of a rank, without arguments: by this Python, or the one of a host that got ringcast."""
    return ["sh", "-c", f'exec "${{{PYTHON}:-$0}}" -P -m {module} "$@"', sys.executable]


def _bring(host: str, starter: Sequence[str], archive: int, limit: float) -> _Kept | str:
    """Unpack the archive on a host; return the directory there, or the reason why there is none."""
    size = os.fstat(archive).st_size
    system = f"{platform.system()} {platform.machine()}"
    settings = {"SYSTEM": system, "VERSION": _VERSION, "CHECK": _CHECK, "SIZE": str(size)}
    settings |= {"PLACED": _PLACED, "UNPACKED": _UNPACKED}
    keeper = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()) + _KEEPER
    with TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                ssh_argv(host, ["sh", "-c", keeper], starter),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )
        except OSError as error:
            return printable(f"{starter[0]}: {error.strerror}")
        try:
            place, python = _unpacked(Dialog(process, limit), archive, size)
        except TimeoutError:
            process.kill()
            _end(process, _END)
            return f"it did not answer for {limit:g} s (RINGCAST_START_TIMEOUT allows more)"
        if place:
            return _Kept(host, process, place, python)
        code = _end(process, _END)
        said.seek(0)
        words = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        return printable(words[-1]) if words else f"ringcast cannot be brought there ({starter[0]}: exit code {code})"


def _unpacked(keeper: Dialog, archive: int, size: int) -> tuple[str, str]:
    """Return the directory with the files of the archive, and Python there; "" if the connection has ended.

    Raises:
        TimeoutError: the host is silent.
    """
    facts = keeper.after(_PLACED.encode())
    if facts is None:
        return "", ""
    with suppress(BrokenPipeError):  # the reason is in the words of the host
        keeper.give(archive, size)
    place, _, python = facts.rpartition(" ")
    return (place, python) if keeper.after(_UNPACKED.encode()) is not None else ("", "")


def _remove(kept: Sequence[_Kept]) -> None:
    """Have the directories removed, by all hosts at once, and wait for that."""
    for each in kept:
        _close(each.process)
    by = time.monotonic() + _END
    for each in kept:
        _end(each.process, max(by - time.monotonic(), 0.0))


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


def _end(process: subprocess.Popen[bytes], limit: float) -> int:
    """Wait for the end of a keeper, which finds that the connection has ended even if its ssh is killed here."""
    assert process.stdout is not None
    _close(process)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    process.stdout.close()
    return code


def _agent(kept: Sequence[_Kept], starter: Sequence[str]) -> str:
    """Return a command that is called as ssh is, and starts the agent of a host from the directory there.

    It is no file, which would be left behind when this command is killed.
    """
    found = [(each.host.strip("[]"), each.place, each.python) for each in kept]
    places = "".join(f"{shlex.quote(facts[0])}) set -- {shlex.join(facts)};;\n" for facts in found)
    agent = f"env PYTHONPATH='$2' {PYTHON}='$3' '$3' -P -m ringcast_launcher.hosts.agent; exit \\$?"
    script = f'case "$1" in\n{places}*) exit 1;;\nesac\nexec {shlex.join(starter)} "$1" "{agent}"'
    return shlex.join(["sh", "-c", script, "agent"])


def _pack(archive: IO[bytes], needed: Sequence[metadata.Distribution]) -> None:
    """Write the archive of ringcast, and of the distributions that it needs."""
    specs = [find_spec(package) for package in ("ringcast", "ringcast_launcher")]
    folders = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", compresslevel=_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                _add(tar, path, path.relative_to(folder.parent))
        for distribution in needed:
            for file in distribution.files or ():
                _add(tar, Path(str(distribution.locate_file(file))), Path(file))
    archive.flush()


def _add(tar: tarfile.TarFile, path: Path, name: Path) -> None:
    """Add a file that a program needs to run; of compiled modules, those of this Python."""
    compiled = path.suffix == ".pyc" and f".{sys.implementation.cache_tag}." not in path.name
    if compiled or ".." in name.parts or "tests" in name.parts or path.suffix in _LEFT_OUT or not path.is_file():
        return
    tar.add(path, str(name))


def _needed() -> list[metadata.Distribution]:
    """Return the distributions on which ringcast depends, here, and zstandard if it is there."""
    found: dict[str, metadata.Distribution] = {}
    waiting = ["ringcast", "zstandard"]
    while waiting:
        name = waiting.pop()
        with suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            if distribution.name not in found:
                found[distribution.name] = distribution
                needs = [need for need in distribution.requires or () if "extra ==" not in need]
                waiting += [match[0] for need in needs if (match := re.match(r"[\w.-]+", need))]
    return [each for name, each in found.items() if name != "ringcast"]

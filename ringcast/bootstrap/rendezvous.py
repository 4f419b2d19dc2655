"""Rendezvous of a cluster job's ranks in directories and files whose names `ringcast.config.worker` derives."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from ringcast._util.dataclass import dataclass
from ringcast._util.socket_path import open_to_all
from ringcast.config import cluster
from ringcast.config.worker import WorkerConfig
from ringcast.control import new_key
from ringcast.errors import ConfigError, RendezvousError

if TYPE_CHECKING:
    from pathlib import Path

LOOK_AGAIN = 0.05  # seconds
SOMEWHERE = "192.0.2.1"  # no host has it (RFC 5737): towards it leads the default route
_NEW_DIRECTORY = "before the job: export RINGCAST_DIR=$(mktemp -d)"


@dataclass(frozen=True, slots=True)
class JoinInfo:
    """The settings with which a worker joins, and on rank 0 the lifeline of a server that runs already."""

    config: WorkerConfig
    lifeline: IO[bytes] | None = None


@contextlib.contextmanager
def rendezvous(config: WorkerConfig) -> Iterator[JoinInfo]:
    """Yield settings with an address and a key; files that only the rendezvous needs are gone after the block.

    Raises:
        ConfigError: a directory is not ours alone, or a host has no address.
        RendezvousError: rank 0 has not published its address within `start_timeout`, or cannot listen there.
    """
    if config.temporary:
        with _own_directory(config.directory) as directory:
            yield JoinInfo(replace(config, directory=directory, control=f"ipc://{directory}/control"))
    elif config.control.startswith("file://"):
        from pathlib import Path

        with _by_file(config, Path(config.control.removeprefix("file://"))) as info:
            yield info
    elif config.launch_context is not None and config.control.startswith("tcp://"):
        yield JoinInfo(replace(config, control=_numeric(config, config.launch_context)))
    else:
        yield JoinInfo(config)


@contextlib.contextmanager
def _own_directory(path: str) -> Iterator[str]:
    """Make a directory, which the control plane removes with the job; without a job it goes at once.

    Its name can be guessed, and another user can have taken it. All ranks then take the first of `path-1`, `path-2`, …
    that is not another user's: directories of other users stay, so all ranks come to the same one.
    """
    path = _not_taken(path)
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):  # another rank's socket is there; the last one removes it
            os.rmdir(path)
        raise


def _not_taken(path: str) -> str:
    """Return the first of these names that no other user has taken, where there is a directory for us alone now."""
    from pathlib import Path

    for name in [path, *(f"{path}-{number}" for number in range(1, cluster.NAMES))]:
        if _made(Path(name), _NEW_DIRECTORY).st_uid == os.getuid():
            private(Path(name))
            return name
    raise ConfigError(
        f"{path}, where the ranks are to meet, and the {cluster.NAMES - 1} names that are tried after it belong to "
        f"other users; {_NEW_DIRECTORY}"
    )


def private(folder: Path, instead: str = _NEW_DIRECTORY) -> None:
    """Make a directory for us alone, or check that it is one; `instead` is the advice where it cannot be made.

    Raises:
        ConfigError: another user may enter it, or it cannot be made.
    """
    status = _made(folder, instead)
    if status.st_uid != os.getuid():
        raise ConfigError(f"{folder}, where the ranks are to meet, belongs to another user: {cluster.NEW_KEY}")
    if status.st_mode & 0o077 or not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{folder}: ranks meet in a directory that is yours alone; remove it, or chmod 700")


def _made(folder: Path, instead: str) -> os.stat_result:
    """Make a directory unless the name is taken; return the status of that name.

    A symbolic link is not followed, so callers refuse it as no directory: its target may be another user's.
    """
    if found := open_to_all(folder.parent):
        raise ConfigError(f"{folder}, where the ranks are to meet: all users can rename what is in {found}; {instead}")
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return folder.lstat()
    except OSError as error:
        raise ConfigError(f"{folder}, where the ranks are to meet: {error.strerror}; {instead}") from None


@contextlib.contextmanager
def _by_file(config: WorkerConfig, path: Path) -> Iterator[JoinInfo]:
    """On rank 0 start the control plane, and publish its address in a file until all have joined; else read that."""
    private(path.parent)
    if config.rank:
        yield JoinInfo(_read(config, path))
        return
    key = config.key or new_key()
    lifeline, address = serve(replace(config, key=key), own_address(config.launch_context))
    try:
        publish(path, {"control": address, "key": key}, "rank 0")
        try:
            yield JoinInfo(replace(config, control=address, key=key), lifeline)
        finally:
            path.unlink(missing_ok=True)
    except BaseException:
        lifeline.close()
        raise


def serve(config: WorkerConfig, host: str) -> tuple[IO[bytes], str]:
    """Start the control plane on a free port of this host; return its lifeline and its address."""
    from ringcast.control.process import START_SERVER, start_server

    deadline = time.monotonic() + max(config.start_timeout, START_SERVER)
    return start_server(replace(config, control=f"tcp://{host}:*"), deadline)


def publish(path: Path, content: Mapping[str, str], who: str) -> None:
    """Write a file by which `who` passes data to other processes of the same user; the file appears atomically.

    Raises:
        ConfigError: it is there.
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}-{os.getpid()}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(file, "w") as stream:
            stream.write(json.dumps(dict(content)))
        os.link(part, path)
    except FileExistsError:
        raise ConfigError(
            f"{path} is there already: another process says that it is {who} of this job, or one of the same name "
            "was killed; in that case remove it"
        ) from None
    finally:
        part.unlink()


def published(path: Path, who: str) -> dict[str, object] | None:
    """Return the data that `who` wrote by `publish`; None as long as there is no file.

    Raises:
        RendezvousError: it cannot be read, or is none of ours.
    """
    # A listing, because file systems of a network remember for a while that a file was not there.
    if path.name not in os.listdir(path.parent):
        return None
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:  # gone meanwhile
        return None
    except (OSError, ValueError) as error:
        raise RendezvousError(f"cannot read {path}, in which {who} wrote how to meet: {error}") from None
    if not isinstance(content, dict):
        raise RendezvousError(f"{path} has other contents than a file of {who} of this job; remove it")
    return content


def _read(config: WorkerConfig, path: Path) -> WorkerConfig:
    deadline = time.monotonic() + config.start_timeout
    while (content := published(path, "rank 0")) is None:
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"rank {config.rank}: rank 0 has not written {path} within {config.start_timeout:g} s; is it running, "
                f"and do all hosts share that directory? If not, before the job: {cluster.NEW_KEY}"
            )
        time.sleep(LOOK_AGAIN)
    match content:
        case {"control": str(control), "key": str(key)} if control.startswith("tcp://"):
            return replace(config, control=control, key=key)
    raise RendezvousError(f"{path} has other contents than a file of rank 0 of this job; remove it")


def _numeric(config: WorkerConfig, place: cluster.LaunchContext) -> str:
    """Return the address of the control plane in numbers: sockets are not bound to names."""
    host, _, port = config.control.removeprefix("tcp://").rpartition(":")
    if _is_number(host):
        return config.control
    if config.rank == 0 and not _addresses(host):
        host = own_address(place)
    deadline = time.monotonic() + config.start_timeout
    while not (found := _addresses(host)):  # the name of a pod is known when the pod is there
        if time.monotonic() > deadline:
            hint = f"; a headless service is needed:\n{cluster.KUBERNETES_SERVICE}"
            raise RendezvousError(
                f"rank {config.rank}: {host}, the host of rank 0, has no address that other hosts can use"
                f"{hint if place.engine == 'Kubernetes' else ' (RINGCAST_CONTROL=tcp://HOST:PORT names another)'}"
            )
        time.sleep(10 * LOOK_AGAIN)
    return f"tcp://{found[0]}:{port}"


def own_address(place: cluster.LaunchContext | None) -> str:
    """Return the address of this host on the route to the job's other hosts, as far as they are known."""
    others = _addresses(place.other) if place is not None and place.other else []
    for target in [*others, SOMEWHERE]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((target, 9))  # asks the routing table; sends nothing
            return str(probe.getsockname()[0])
    return next(iter(_addresses(socket.gethostname())), "127.0.0.1")  # without a route there is this host only


def _addresses(host: str) -> list[str]:
    """Return the addresses of a host; loopback ones only if it is named so, and not by a line of /etc/hosts."""
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)]
    except OSError:
        return []
    if host == "localhost" or _is_number(host):
        return found
    import ipaddress

    return [address for address in found if not ipaddress.ip_address(address).is_loopback]


def _is_number(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True

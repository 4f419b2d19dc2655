"""The groups that torch makes: where their ranks meet, and the two kinds of plug-ins.

A group of the whole program under `ringcast-launch` is the job. Elsewhere, as under torchrun, its ranks meet through
torch's store. The members of a part make it of the whole group, without a message; only where that is no group of
ringcast, they too meet through the store.

A plug-in is a process group in the place of torch's, or a backend within one. The former is called by Python directly,
and its `Work` tells all that it knows, while torch's own hides which rank has sent a message, and whether a call is
over. So a group with no backend but ringcast is of that kind. The latter serves groups with a backend for each device;
torch before 2.14 cannot have it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ringcast.adapters.meeting import meet
from ringcast.adapters.subgroups import subgroup
from ringcast.communicator import Communicator
from ringcast.errors import RingcastError
from ringcast.torch.calls import Calls
from ringcast.torch.errors import as_torch
from ringcast.torch.rendezvous import job

NAME = "ringcast"
CPU = torch.device("cpu")
MEETING = timedelta(seconds=300)  # at most, in which all ranks must have come, as torch's own groups have it
_names: Counter[str] = Counter()  # how often this process has met others under a name
_whole: list[Communicator] = []  # of the default group, if that is one of ringcast, and not destroyed


class ProcessGroup(Calls, dist.ProcessGroup):
    """A process group of torch whose calls are ringcast's."""

    supports_splitting = supports_coalescing = False

    def __init__(self, comm: Communicator, rank: int, size: int, timeout: timedelta) -> None:
        dist.ProcessGroup.__init__(self, rank, size)
        self._open(comm, timeout)
        self._texts = {"name": "", "description": ""}
        if Backend is not None:  # which torch's own operators in C++ call, as those of DTensor
            self._backend = Backend(comm, rank, size, timeout)
            self._register_backend(CPU, dist.ProcessGroup.BackendType.CUSTOM, self._backend)

    def getBackendName(self) -> str:
        return NAME

    name = _get_backend_name = getBackendName

    def _get_backend(self, device: torch.device) -> Any:
        if device.type != CPU.type:
            raise RuntimeError(f"this group has no backend for {device}, but for the CPU alone")
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        return [CPU]

    def getGroupName(self) -> str:
        return self._texts["name"]

    def setGroupName(self, name: str) -> None:
        self._texts["name"] = name

    def getGroupDesc(self) -> str:
        return self._texts["description"]

    def setGroupDesc(self, description: str) -> None:
        self._texts["description"] = description

    # torch calls these from Python, and the ones above from C++.
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def split_group(
        self, ranks: Sequence[int], timeout: timedelta | None = None, *, group_name: str = "", **_: Any
    ) -> ProcessGroup | None:
        """Return a group of some ranks, in this order; None if this rank is not one of them. Each of them calls this.

        `torch.distributed.split_group` refuses groups without an accelerator, and does not call this.
        """
        if self.rank() not in ranks:
            return None
        limit = timedelta(seconds=self._comm.timeout or 0) if timeout is None else timeout
        part: ProcessGroup = _split(self, ranks, group_name, limit)
        part.setGroupName(group_name)
        return part

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: calls are numbered anyway."""

    def _get_sequence_number_for_group(self) -> int:
        return self._made_calls

    def _start_coalescing(self, device: torch.device) -> None:
        """Do nothing: calls begin one by one."""

    def _end_coalescing(self, device: torch.device) -> None:
        """Do nothing; see `_start_coalescing`."""


def _backend_class() -> type[Any] | None:
    """Return the class of a backend within a process group of torch; None where torch has none in Python."""
    base: type[Any] = getattr(dist, "BackendBase", c10d.Backend)
    if "__init__" not in vars(base) or "No constructor" in _tried(base):
        return None

    class Backend(Calls, base):
        """A backend of a process group of torch, which may have other ones for other devices."""

        def __init__(self, comm: Communicator, rank: int, size: int, timeout: timedelta) -> None:
            base.__init__(self, rank, size)
            self._open(comm, timeout)

        def getBackendName(self) -> str:
            return NAME

        supports_coalescing = False
        supports_splitting = True

        @property
        def options(self) -> Any:
            return base.Options(NAME, timeout=timedelta(seconds=self._comm.timeout or 0))

        def split(self, _: object, ranks: Sequence[int], options: Any) -> Any:
            """Return the backend of a part of the group, which all of its ranks call.

            Raises:
                ValueError: this rank does not belong to it; torch 2.14.1 would crash if it got None.
            """
            if self.rank() not in ranks:
                raise ValueError(f"rank {self.rank()} is in no part of the group; give it one, as [{self.rank()}]")
            return _split(self, ranks, options.group_name, options._timeout)

    return Backend


def _tried(base: type[Any]) -> str:
    probe = type("Probe", (base,), {})
    try:
        probe(0, 1)
    except TypeError as error:
        return str(error)
    return ""


Backend = _backend_class()


def _split(whole: Any, ranks: Sequence[int], name: str, timeout: timedelta) -> Any:
    """Return a group, or backend, like the whole one, of some of its ranks, in this order."""
    part = subgroup(whole._comm, ranks, name)
    return type(whole)(part, part.rank, part.size, timeout)


def create(options: Any, _: object = None) -> Any:
    """Return the process group, or the backend, that torch asks for.

    Args:
        options: torch's DistributedBackendOptions.
    """
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = list(options.global_ranks_in_group)
    try:
        comm = _whole_group(options, rank, size, timeout) if not ranks else _part(options, ranks, rank, size, timeout)
    except RingcastError as error:
        raise as_torch(error) from error
    kind = ProcessGroup if Backend is None or _is_alone() else Backend
    return kind(comm, rank, size, timeout)


def _whole_group(options: Any, rank: int, size: int, timeout: timedelta) -> Communicator:
    launched = job(rank, size)
    comm = _met(options, rank, size, timeout) if launched is None else subgroup(launched, range(size), options.group_id)
    _whole[:] = [comm]
    return comm


def _part(options: Any, ranks: Sequence[int], rank: int, size: int, timeout: timedelta) -> Communicator:
    whole = _whole[0] if _whole and not _whole[0].closed else job(dist.get_rank(), dist.get_world_size())
    if whole is None:
        return _met(options, rank, size, timeout)
    return subgroup(whole, ranks, options.group_id)


def _met(options: Any, rank: int, size: int, timeout: timedelta) -> Communicator:
    """Return the communicator of ranks that meet through torch's store."""
    _names[options.group_id] += 1
    store = _Store(options.store, f"{NAME}/{_names[options.group_id]}/")
    return meet(store, rank, size, timeout=min(timeout, MEETING).total_seconds())


def process_group(store: Any, rank: int, size: int, timeout: timedelta = MEETING) -> ProcessGroup:
    """Return a process group of ranks that meet through a store of torch, beside those of `init_process_group`.

    Each rank may be a thread of one process. The group ends with its `shutdown`, or with its `abort`.

    Args:
        store: where they meet, and no others have met before.
        rank: number of this rank, 0 <= rank < size.
        size: number of ranks, the same on all of them.
        timeout: in which all ranks must have come, and later the limit of each call.

    Raises:
        DistBackendError: ranks did not come in time, and the text names them; or they expect another number of ranks.
    """
    try:
        comm = meet(_Store(store, f"{NAME}/"), rank, size, timeout=timeout.total_seconds())
    except RingcastError as error:
        raise as_torch(error) from error
    return ProcessGroup(comm, rank, size, timeout)


class _Store:
    """torch's store, as `meet` wants it."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = dist.PrefixStore(prefix, store)

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
        except dist.DistStoreError as error:
            raise TimeoutError(str(error)) from error
        return bytes(self._store.get(key))


def _is_alone() -> bool:
    """Return whether the group that torch makes now has no backend but this one, as far as can be seen.

    torch does not say it: a process group that is returned takes the place of torch's, with all its backends.
    """
    frame = sys._getframe(2)
    config = frame.f_locals.get("backend_config")
    devices = getattr(config, "device_backend_map", None)
    return isinstance(devices, dict) and [*devices] == [CPU.type]

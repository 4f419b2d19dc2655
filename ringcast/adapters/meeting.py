"""Ranks without a launcher meet through a store of keys and values, as torch, Ray and others have one.

Each rank writes its `Presence` into the store. Rank 0 reads all of them, chooses the transport, starts the control
plane and writes the plan: its address, with the job's key. The others wait for the plan, and join. From then on the
store has no part: the control plane finds a rank that dies.
"""

from __future__ import annotations

import atexit
import json
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import IO, Literal, Protocol

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast._util.safe_text import safe_text
from ringcast.adapters import presence
from ringcast.adapters.presence import Presence
from ringcast.bootstrap.in_process import thread_endpoints
from ringcast.bootstrap.rendezvous import JoinInfo, own_address, serve
from ringcast.bootstrap.world import connected, join, network_of, thread_group
from ringcast.communicator import Communicator
from ringcast.config import worker
from ringcast.config.worker import AUTO, WorkerConfig
from ringcast.control import new_key
from ringcast.errors import RendezvousError
from ringcast.procs import green_threads
from ringcast.wire.error_text import in_a_line
from ringcast.wire.transport_kinds import SHM

LOOK = 0.02  # seconds of a look whether a rank that has not come in time is there after all
JOIN = 5.0  # seconds that ranks which have all come in time may take to join, however little is left of it
LOOPBACK = "127.0.0.1"
_PLAN = "ringcast/plan"


class Store(Protocol):
    """A store of keys and values that all ranks of one group reach, and no others: it will hold the group's key.

    No key of an earlier group may be in it.
    """

    def set(self, key: str, value: bytes) -> None:
        """Write a value."""

    def get(self, key: str, timeout: float) -> bytes:
        """Return the value of a key, as soon as there is one.

        Raises:
            TimeoutError: there was none within `timeout` seconds, 0 or more.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How the ranks meet; or, with an `error`, why they do not."""

    control: str = ""
    nonce: int = 0
    key: str = field(default="", repr=False)  # no log may show it
    transport: str = ""
    size: int = 0
    error: str = ""

    def pack(self) -> bytes:
        """Return the plan as bytes, which `_unpack` reads."""
        return json.dumps([self.control, self.nonce, self.key, self.transport, self.size, self.error]).encode()


def meet(
    store: Store,
    rank: int,
    size: int,
    *,
    timeout: float = 60.0,
    threads: Literal["single", "multiple"] = "single",
    address: str = "",
) -> Communicator:
    """Return the communicator of ranks that no launcher has started, when all of them have called this.

    A process may be in several such groups, one after the other or at the same time. Ranks of one host share memory
    where that is possible; others talk over encrypted sockets. RINGCAST_TRANSPORT, _IFACE, _PORTS, _ADVERTISE,
    _SECURITY, _NO_PICKLE, _CONFIG, _TIMEOUT, _DETERMINISTIC and _DEBUG count as they do for `ringcast.init`. A group
    ends with `Communicator.finalize`, or with the program.

    Cost: about 0.2 s, for the control plane's process; p reads of the store by rank 0, 1 by each other rank.

    Args:
        store: where the ranks meet; only rank 0's `get` reads more than one key.
        rank: number of this rank, 0 <= rank < size.
        size: number of ranks, the same on all of them.
        timeout: seconds, above 0, in which all ranks must have come.
        threads: as in `ringcast.init`.
        address: of rank 0's host, at which other hosts reach it, in numbers (IPv6: in brackets); empty: its address on
            the default route. Without a meaning where all ranks are on one host.

    Returns:
        A Communicator, whose attribute `timeout` may be set.

    Raises:
        ValueError: rank, size, timeout or threads make no sense.
        ConfigError: a variable of the environment holds something unusable.
        RendezvousError: ranks did not come within `timeout` seconds, and the text names them; or they expect another
            number of ranks; or rank 0 could not start the control plane.
        UsageError: gevent or eventlet has replaced Python's blocking calls.

    >>> class Nothing:
    ...     "A store for one rank, which needs none."
    >>> meet(Nothing(), 0, 1)
    <Communicator: rank 0 of 1>
    """
    _check(rank, size, timeout, threads)
    green_threads.refuse(f"rank {rank}")
    deadline = time.monotonic() + timeout
    comm = _alone() if size == 1 else _together(store, rank, size, timeout, deadline, address)
    if threads == "multiple":
        comm.progress_thread()
    _keep(comm)
    return comm


def _check(rank: int, size: int, timeout: float, threads: str) -> None:
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"rank={rank}, size={size}: expected 0 <= rank < size")
    if not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ValueError(f"timeout={timeout}: expected a number of seconds above 0")
    if threads not in ("single", "multiple"):
        raise ValueError(f"threads={safe_text(threads)}: expected 'single' or 'multiple'")


def _alone() -> Communicator:
    return Communicator(thread_group(thread_endpoints(1)[0]))


def _together(store: Store, rank: int, size: int, timeout: float, deadline: float, address: str) -> Communicator:
    store.set(_here(rank), presence.own(size).pack())
    if rank == 0:
        plan, lifeline = _lead(store, size, timeout, deadline, address)
    else:
        plan, lifeline = _follow(store, rank, size, timeout, deadline), None
    try:
        config = _config(plan, rank, size, deadline)
        network = network_of(config)
        group = join(JoinInfo(config, lifeline), network)
    except BaseException:
        if lifeline is not None:
            lifeline.close()
        raise
    return connected(group, config, network)


def _here(rank: int) -> str:
    return f"ringcast/here/{rank}"


def _config(plan: Plan, rank: int, size: int, deadline: float) -> WorkerConfig:
    config = worker.joining(rank, size, plan.control, nonce=plan.nonce, key=plan.key, transport=plan.transport)
    return replace(config, start_timeout=max(JOIN, deadline - time.monotonic()))


def _lead(store: Store, size: int, timeout: float, deadline: float, address: str) -> tuple[Plan, IO[bytes]]:
    """Wait for all ranks, start the control plane, and publish the plan; return it with the lifeline."""
    try:
        ranks = _all_present(store, size, timeout, deadline)
        near = presence.on_one_system(ranks)
        wish = worker.transport_wish()
        transport = SHM.name if wish == AUTO and presence.share_memory(ranks) else wish
        host = LOOPBACK if near else address or own_address(None)
        plan = Plan(f"tcp://{host}:*", secrets.randbits(64), new_key(), transport, size)
        lifeline, control = serve(_config(plan, 0, size, deadline), host)
    except BaseException as error:
        text = str(error) if isinstance(error, RendezvousError) else in_a_line(error)
        store.set(_PLAN, Plan(error=text).pack())
        raise
    plan = replace(plan, control=control)
    try:
        store.set(_PLAN, plan.pack())
    except BaseException:
        lifeline.close()
        raise
    return plan, lifeline


def _all_present(store: Store, size: int, timeout: float, deadline: float) -> list[Presence]:
    found: list[Presence] = []
    for rank in range(size):
        try:
            data = store.get(_here(rank), _left(deadline))
        except TimeoutError:
            missing = _missing(store, range(rank, size))
            raise _not_met(0, _did_not_come(missing or [rank], size), timeout) from None
        if (one := presence.unpack(data)) is None:
            raise RendezvousError(f"rank 0: the store's {_here(rank)} is none of ringcast's; give each group a new one")
        if one.size != size:
            raise RendezvousError(f"rank {rank} expects {one.size} ranks, but rank 0 expects {size}")
        found.append(one)
    return found


def _follow(store: Store, rank: int, size: int, timeout: float, deadline: float) -> Plan:
    """Wait for rank 0's plan."""
    try:
        data = store.get(_PLAN, _left(deadline))
    except TimeoutError:
        data = _late(store, rank, size, timeout)
    plan = _unpack(data)
    if plan is None:
        raise RendezvousError(f"rank {rank}: the store's {_PLAN} is none of ringcast's; give each group a new store")
    if plan.error:
        raise RendezvousError(f"rank {rank}: rank 0 ended the meeting: {plan.error}")
    if plan.size != size:
        raise RendezvousError(f"rank {rank} expects {size} ranks, but rank 0 expects {plan.size}")
    return plan


def _unpack(data: bytes) -> Plan | None:
    try:
        control, nonce, key, transport, size, error = json.loads(data)
        return Plan(str(control), int(nonce), str(key), str(transport), int(size), str(error))
    except (TypeError, ValueError):
        return None


def _late(store: Store, rank: int, size: int, timeout: float) -> bytes:
    """Return rank 0's plan, which may come late if all ranks have come in time."""
    if missing := _missing(store, range(size)):
        raise _not_met(rank, _did_not_come(missing, size), timeout)
    try:
        return store.get(_PLAN, JOIN)
    except TimeoutError:
        raise _not_met(rank, f"all {size} ranks have come, but rank 0 has not said how they meet", timeout) from None


def _missing(store: Store, among: Sequence[int]) -> list[int]:
    """Return the ranks among these that have not come."""
    missing = []
    for each in among:
        try:
            store.get(_here(each), LOOK)
        except TimeoutError:
            missing.append(each)
    return missing


def _did_not_come(missing: Sequence[int], size: int) -> str:
    return f"{ranks_in_words(missing)} of {size} did not come"


def _not_met(rank: int, why: str, timeout: float) -> RendezvousError:
    return RendezvousError(f"rank {rank}: {why} within {timeout:g} s; look at their output, or allow more time")


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


_members: list[Communicator] = []  # those that were not left, and perhaps some that were
_lock = threading.Lock()


def _keep(comm: Communicator) -> None:
    """Have this group left at the end of the program, unless it is left before."""
    with _lock:
        if not _members:
            atexit.unregister(_leave_at_the_end)
            atexit.register(_leave_at_the_end)
        _members[:] = [each for each in _members if not each.closed] + [comm]


def _leave_at_the_end() -> None:
    """Leave all groups at the end of the program; the others get the error that has ended it, if one has."""
    for comm in _members:
        with suppress(Exception):  # the program has ended, and no call can raise it any more
            comm.__exit__(None, getattr(sys, "last_value", None))

"""Monitor of a rank's connections: finds the dead ones by the rules of `ringcast.control.dead_link`.

The thread of the control plane looks once a second, also while the program computes. A connection that has nothing to
send, which is the usual case, costs one system call.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from ringcast._util.dataclass import dataclass
from ringcast.control import tcp_state
from ringcast.control.dead_link import Trial, due, verdict
from ringcast.control.tcp_state import Address
from ringcast.procs.timing import TIMING

PAUSE = 3.0  # seconds between two looks after which this process, or its machine, was stopped: nothing counts
TRIALS = 2  # new connections per look at a link in doubt
CLOSED = TIMING.link_closed
_UNDER_WAY = (0, errno.EINPROGRESS)


@dataclass(slots=True)
class _Try(Trial):
    sock: socket.socket | None = None  # while it is under way


@dataclass(slots=True)
class _Connection:
    """One of the connections of a link, which has several where the way is long."""

    address: Address
    file: int | None = None
    state: tcp_state.TcpState | None = None  # at the last look, if it had something to send
    since: float | None = None  # from when on it should have answered
    answers: int | None = None  # how often it had answered at the last look
    retransmitted: int = 0  # segments, at the last look …
    before: int = 0  # … and before the first trial
    closed: float | None = None  # when it was seen that it had been closed
    trials: list[_Try] = field(default_factory=list)

    def rest(self) -> None:
        """Forget all doubts: the connection answered, or its state is not known."""
        self.state = self.since = self.answers = None
        self.end_trials()

    def end_trials(self) -> None:
        for trial in self.trials:
            if trial.sock is not None:
                trial.sock.close()
        self.trials = []


@dataclass(slots=True)
class _Link:
    address: Address
    connections: list[_Connection]
    settled: bool = False  # whether no more connections are expected

    def end_trials(self) -> None:
        for connection in self.connections:
            connection.end_trials()


class LinkWatch:
    """The links of one rank; one thread uses it."""

    def __init__(self, links: Callable[[], Mapping[int, str]]) -> None:
        """Watch what `links` returns: by rank, the address at which the transport has connected, or tries to."""
        self._links, self._known = links, tcp_state.known()
        self._watched: dict[int, _Link | None] = {}  # None: of no interest any more
        self._looked: float | None = None
        self._rtt = 0.0  # the longest at the last look

    def forget(self, peer: int) -> None:
        """Stop watching a rank that has left, or failed, or whose link is dead."""
        link, self._watched[peer] = self._watched.get(peer), None
        if link is not None:
            link.end_trials()

    def look(self, now: float) -> list[tuple[int, str]]:
        """Return the links that are dead, each once, and why; `now` is in seconds. Never blocks."""
        if not self._known:
            return []
        paused = self._looked is not None and now - self._looked > PAUSE
        self._looked = now
        links = self._current()
        if paused:
            for connection in (each for link in links.values() for each in link.connections):
                connection.rest()
                connection.closed = None
        self._find(links.values())
        rtt, self._rtt = self._rtt, 0.0
        dead = []
        for peer, link in links.items():
            if why := self._judge(link, now, rtt):
                self.forget(peer)
                dead.append((peer, why))
        return dead

    def close(self) -> None:
        """Close all trial connections."""
        for link in self._watched.values():
            if link is not None:
                link.end_trials()

    def _current(self) -> dict[int, _Link]:
        for peer, text in self._links().items():
            if peer not in self._watched:
                address = tcp_state.parse(text)
                self._watched[peer] = None if address is None else _Link(address, [_Connection(address)])
        return {peer: link for peer, link in [*self._watched.items()] if link is not None}

    def _find(self, links: Collection[_Link]) -> None:
        """Find the connections; a link of several makes them one after the other, so it is looked at once more."""
        missing = [link for link in links if not link.settled]
        if not missing:
            return
        trials = [
            trial.sock.fileno()
            for link in links
            for connection in link.connections
            for trial in connection.trials
            if trial.sock is not None
        ]
        with suppress(OSError):
            for i, files in tcp_state.find({link.address: i for i, link in enumerate(missing)}, trials).items():
                _note(missing[i], files)

    def _judge(self, link: _Link, now: float, rtt: float) -> str:
        for connection in link.connections:
            if why := self._observe(connection, now):
                return why
        doubtful = [each for each in link.connections if each.since is not None]
        return _decide(min(doubtful, key=lambda each: each.since or 0.0), now, rtt) if doubtful else ""

    def _observe(self, link: _Connection, now: float) -> str:
        """Look at a connection; return why it is dead if it was closed."""
        try:
            at_rest = link.file is not None and tcp_state.idle(link.file)
            state = None if at_rest or link.file is None else tcp_state.state(link.file, link.address)
        except OSError:  # nothing can be said
            at_rest = True
        if at_rest or (state is not None and state.queued == 0):
            link.rest()
            return ""
        if state is None and link.file is not None:
            return self._closed(link, now)
        link.state = state
        self._await(link, now, state)
        return ""

    def _await(self, link: _Connection, now: float, state: tcp_state.TcpState | None) -> None:
        """Note since when a connection should have answered."""
        link.since = now if link.since is None else link.since
        if state is not None:
            self._rtt = max(self._rtt, state.rtt)
            if state.answers != link.answers and now - state.silent > link.since:
                link.since = now - state.silent
                link.end_trials()
            link.answers = state.answers

    def _closed(self, link: _Connection, now: float) -> str:
        link.rest()
        link.closed = now if link.closed is None else link.closed
        return "the connection was closed by the network" if now - link.closed >= CLOSED else ""


def _note(link: _Link, files: Sequence[int]) -> None:
    """Take note of the connections that were found."""
    known = {connection.file for connection in link.connections}
    link.settled = known == set(files)
    for file in files:
        if None in known:
            known = {file}
            link.connections[0].file = file
        elif file not in known:
            link.connections.append(_Connection(link.address, file))


def _decide(link: _Connection, now: float, rtt: float) -> str:
    """Return why a connection is dead that should have answered; new ones are tried before."""
    assert link.since is not None
    stalled, state = now - link.since, link.state
    if not due(stalled, rtt):
        return ""
    _take(link.trials)
    closed = state is not None and state.flying == 0
    resent = state is None or link.retransmitted > link.before
    why = verdict(stalled, link.trials, rtt=rtt, closed=closed, there=state is not None, resent=resent)
    link.retransmitted = 0 if state is None else state.retransmitted
    if not why:
        if not link.trials:
            link.before = link.retransmitted
        link.trials += [trial for _ in range(TRIALS) if (trial := _begin(link.address)) is not None]
    return why


def _begin(address: Address) -> _Try | None:
    """Begin a connection from a fresh port; None where there is no file left for it."""
    try:
        sock = socket.socket(address[0], socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        return None
    code = sock.connect_ex(address[1])
    if code in _UNDER_WAY:
        return _Try(sock=sock)
    sock.close()
    return _Try(error=os.strerror(code))


def _take(trials: list[_Try]) -> None:
    """Take note of the connections that were made, or refused, and close them."""
    poller = select.poll()
    waiting = {trial.sock.fileno(): trial for trial in trials if trial.sock is not None}
    for file in waiting:
        poller.register(file, select.POLLOUT)
    for file, _ in poller.poll(0):
        trial = waiting[file]
        assert trial.sock is not None
        with trial.sock as sock:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            trial.made, trial.error = code == 0, os.strerror(code) if code else ""
            with suppress(OSError):
                trial.smoothly = trial.made and tcp_state.of(sock).retransmitted == 0
        trial.sock = None

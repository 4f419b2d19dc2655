"""The master of a pool: it carries out `Decisions`, over a communicator whose other ranks are the workers.

Messages to the caller are put into a queue. Any thread may `take` a message of the caller; one thread of its own
serves the workers, another one takes part in broadcasts, which may take long: the others go on meanwhile.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from ringcast.collectives.status import ANY_SOURCE, Status
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.errors import PeerFailed, RingcastError
from ringcast.pool.decide import Action, Death, Decisions, Digest, Fail, Forget, Run, Spread, Task, Together
from ringcast.pool.messages import (
    Begin,
    Broken,
    Cancel,
    Drop,
    Ended,
    Failed,
    Frames,
    Give,
    Group,
    Left,
    Lost,
    Outcome,
    Outcomes,
    Recall,
    Recalled,
    Receive,
    Received,
    Refused,
    Started,
    Stop,
    Submit,
    TaskFacts,
    Tasks,
)
from ringcast.pool.worker import as_value, broadcast
from ringcast.requests.request import Request
from ringcast.wire.error_text import in_a_line

EAGER = 32 << 10  # bytes that are sent at once, without a wait for the receiver
Said: TypeAlias = "queue.SimpleQueue[tuple[Any, Frames] | None]"


class Master:
    """The tasks of a pool that are not at an end, and the workers that run them. None in `said`: it has ended."""

    def __init__(self, comm: Communicator, hosts: Mapping[int, str], retries: int, said: Said) -> None:
        """Serve the workers: all ranks of `comm` but this one, whose threads may all communicate."""
        self._comm, self._hosts, self._said = comm, hosts, said
        self._lock = threading.Lock()
        self._decisions = Decisions((rank for rank in range(comm.size) if rank != comm.rank), retries)
        self._tasks: dict[int, tuple[TaskFacts, Frames]] = {}
        self._content: dict[Digest, Any] = {}
        self._unsent: dict[int, list[Request[None]]] = {}  # by worker: messages that it may not have taken
        self._gathered: dict[int, list[tuple[Outcome, Frames]]] = {}  # outcomes of tasks of several ranks
        self._broadcasts: queue.SimpleQueue[tuple[Spread, Any] | None] = queue.SimpleQueue()
        self.stopped = False  # the workers are to leave
        self._left: set[int] = set()  # workers, after Stop
        self._recalled = False  # other workers get the tasks that wait, or have to run again
        self._none_left = ""  # the death of the last worker, until the caller is informed of it
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._serve, "pool-results"), (self._broadcast, "pool-broadcasts"))
        ]
        for thread in self._threads:
            thread.start()

    def take(self, messages: Sequence[tuple[Any, Frames]]) -> None:
        """Obey messages of the caller."""
        with self._lock:
            for message, frames in messages:
                if not self.stopped:
                    self._obey(message, frames)
            if not self.stopped:
                self._carry_out()

    def _obey(self, message: Any, frames: Frames) -> None:
        match message:
            case Submit(task):
                self._tasks[task.number] = task, frames
                self._decisions.add(_as_decided(task, frames))
            case Give(digest):
                self._content[digest] = frames[0]
                self._decisions.content(digest, len(frames[0]))
            case Drop(digest):
                self._decisions.drop(digest)
                del self._content[digest]
            case Cancel(number):
                if self._decisions.cancel(number):
                    del self._tasks[number]
            case Recall():
                self._recalled = True
                self._give_back(self._decisions.recall())
            case Begin(initializer):
                for worker in self._decisions.alive:
                    self._send(worker, Begin(initializer), frames)
            case Stop():
                self._stop()

    def _give_back(self, numbers: Sequence[int]) -> None:
        """Give the caller tasks back, with the content that they need."""
        given = [self._tasks.pop(number) for number in numbers]
        needs = dict.fromkeys(each for facts, own in given for each in _as_decided(facts, own).needs)
        frames = [self._content[each] for each in needs]
        for _, own in given:
            frames += own
        facts, counts = tuple(facts for facts, _ in given), tuple(len(own) for _, own in given)
        self._say(Recalled(tuple(needs), facts, counts), frames)

    def join(self) -> None:
        """Wait until the threads have ended, after Stop; workers that live get all messages before."""
        for thread in self._threads:
            thread.join()
        for request in itertools.chain.from_iterable(self._unsent.values()):
            with suppress(RingcastError):
                request.wait()

    def _stop(self) -> None:
        self.stopped = True
        for worker in self._decisions.alive:
            self._send(worker, Stop())
        self._broadcasts.put(None)
        if not self._decisions.alive:
            self._comm.send((Stop(), []), self._comm.rank)  # ends the wait for results

    def _carry_out(self) -> None:
        """Do the actions that are due, and further ones after deaths meanwhile; called with the lock."""
        while actions := self._due():
            for action in actions:
                if self._concerns_the_living(action):
                    self._do(action)
        if self._none_left and not self._recalled:
            self._say(Broken(self._none_left, ""))
        self._none_left = ""

    def _due(self) -> list[Action]:
        if self._recalled and (numbers := self._decisions.recall()):
            self._give_back(numbers)
        return self._decisions.next()

    def _concerns_the_living(self, action: Action) -> bool:
        """Return whether an action is still due; not if all its workers have died since it was decided on."""
        match action:
            case Run(worker) | Forget(worker):
                return worker in self._decisions.alive
            case Together(_, workers) | Spread(_, workers):
                return not set(workers).isdisjoint(self._decisions.alive)
        return True

    def _do(self, action: Action) -> None:
        match action:
            case Run(worker, numbers, content):
                frames = [self._content[each] for each in content]
                tasks, counts = list[TaskFacts](), list[int]()
                for number in numbers:
                    facts, own = self._tasks[number]
                    tasks.append(facts)
                    counts.append(len(own))
                    frames += own
                self._say(Started(numbers))
                self._send(worker, Tasks(content, tuple(tasks), tuple(counts)), frames)
            case Together(number, workers, serial, content):
                facts, own = self._tasks[number]
                self._gathered[number] = []
                self._say(Started((number,)))
                for worker in workers:
                    frames = [*(self._content[each] for each in content), *own]
                    self._send(worker, Group(content, facts, workers, serial), frames)
            case Spread(digest, workers, serial):
                for worker in workers:
                    self._send(worker, Receive(digest, workers, serial))
                self._broadcasts.put((action, self._content[digest]))
            case Forget(worker, digest):
                self._send(worker, Drop(digest))
            case Fail(number, deaths, reason):
                self._tasks.pop(number, None)
                self._gathered.pop(number, None)
                death = (deaths[-1].worker, deaths[-1].host, deaths[-1].cause) if deaths else None
                self._say(Failed(number, death, len(deaths), reason))

    def _say(self, message: Any, frames: Frames = ()) -> None:
        self._said.put((message, frames))

    def _send(self, worker: int, message: Any, frames: Frames = ()) -> None:
        """Send a message to a worker; one that has died meanwhile gets none."""
        value = as_value(message, frames)
        try:
            if sum(map(len, frames)) <= EAGER:
                self._comm.send(value, worker)
            else:
                self._unsent.setdefault(worker, []).append(self._comm.isend(value, worker))
        except PeerFailed:
            self._bury()

    def _reap(self, worker: int) -> None:
        """Wait for the ends of sends to a worker that are over."""
        rest = []
        for request in self._unsent.pop(worker, []):
            try:
                if request.test():
                    request.wait()
                else:
                    rest.append(request)
            except PeerFailed:
                pass
        if rest:
            self._unsent[worker] = rest

    def _serve(self) -> None:
        """Take the messages of workers, until the end."""
        try:
            while not (self.stopped and self._left.issuperset(self._decisions.alive)):
                self._serve_one()
        except BaseException as error:  # as an end of the job
            self._end(in_a_line(error))
        else:
            self._said.put(None)

    def _serve_one(self) -> None:
        """Take the next message of a worker, or note a death."""
        status, message = Status(), None
        with suppress(PeerFailed):
            message, frames = self._comm.recv(ANY_SOURCE, status=status)
        with self._lock:
            if message is None:
                self._bury()
            elif isinstance(message, Left):
                self._reap(status.source)
                self._left.add(status.source)
            elif status.source in self._decisions.alive:
                self._reap(status.source)
                self._hear(status.source, message, frames)
            if not self.stopped:
                self._carry_out()

    def _hear(self, worker: int, message: Any, frames: Frames) -> None:
        match message:
            case Outcomes(outcomes):
                rest = iter(frames)
                for outcome in outcomes:
                    self._ended(worker, outcome, [next(rest) for _ in range(outcome.frames)])
            case Received(digest, well):
                self._decisions.received(worker, digest, well=well)
            case Refused(cause, traceback):
                where = f"the initializer raised on rank {worker} ({self._hosts.get(worker, '')})"
                self._say(Broken(f"{where}: {cause}", traceback))

    def _ended(self, worker: int, outcome: Outcome, frames: Frames) -> None:
        facts, given = self._tasks[outcome.number]
        if facts.ranks:
            self._gathered[outcome.number].append((outcome, frames))
        if not self._decisions.done(worker, outcome.number, outcome.seconds):
            return
        all_of_it = self._gathered.pop(outcome.number, None) or [(outcome, frames)]
        all_of_it.sort(key=lambda each: each[0].rank)
        outcomes, parts = zip(*all_of_it, strict=True)
        lost = next((each.lost for each in outcomes if each.lost is not None), None)
        if facts.ranks and lost is not None and all(each.ok or each.follows for each in outcomes):
            rank = self._comm.members.index(lost)
            self._decisions.lost(_as_decided(facts, given), Death(rank, self._hosts.get(rank, ""), "it has died"))
            return
        self._decisions.ended(outcome.number)
        del self._tasks[outcome.number]
        self._say(Ended(outcome.number, outcomes), [frame for part in parts for frame in part])

    def _bury(self) -> None:
        """Note the workers that have died; `_carry_out` draws the consequences. Called with the lock."""
        failed = group_of(self._comm).endpoint.protocol.failed
        gone = [rank for rank in self._comm.get_failed() if rank in self._decisions.alive]
        self._comm.ack_failed()
        for rank in gone:
            failure = failed.get(self._comm.members[rank])
            cause = (failure.cause if failure else "it has left the job").partition("\n")[0]
            host = self._hosts.get(rank, "")
            self._decisions.died(rank, host, cause)
            self._reap(rank)
        if gone:
            self._say(Lost(tuple(gone), len(self._decisions.alive)))
        if gone and not self._decisions.alive:
            self._none_left = f"no worker is left: rank {gone[-1]} ({host}) has died: {cause}"

    def _broadcast(self) -> None:
        """Take part in one broadcast after the other."""
        while (order := self._broadcasts.get()) is not None:
            spread, data = order
            members = self._comm.rank, *spread.workers
            try:
                broadcast(self._comm, members, spread.serial, np.frombuffer(data, np.uint8))
            except BaseException as error:  # as an end of the job
                self._end(in_a_line(error))
                return
            del order, data

    def _end(self, why: str) -> None:
        """End the pool, and the waits of the caller and of the other thread."""
        with self._lock:
            if not self.stopped:
                self._say(Broken(why, ""))
                with suppress(RingcastError):  # of workers that get no messages any more
                    self._stop()
            self._said.put(None)
            self._broadcasts.put(None)


def _as_decided(facts: TaskFacts, frames: Frames) -> Task:
    """Return a task as decisions know it."""
    digests = (*dict.fromkeys([facts.function, *filter(None, facts.digests)]),) if facts.digests else (facts.function,)
    return Task(facts.number, digests, sum(map(len, frames)), facts.ranks)

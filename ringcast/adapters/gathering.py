"""Let ranks find a fresh part of a store that outlives their group, where an earlier one of that name may have died.

Rank 0 writes a call, a random number. Each other rank that sees a new call answers it, with a random number of its own.
Rank 0 confirms the answers that it has taken, and a rank goes on where its own is among them: so what dead processes
have left is never taken for a living rank.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.errors import RendezvousError

SOON, SELDOM = 0.005, 0.05  # seconds between two looks, at first and later


class Board(Protocol):
    """A store of keys and values that all ranks reach, and that outlives them."""

    def put(self, key: str, value: bytes) -> None:
        """Write a value, over one that is there."""

    def look(self, key: str) -> bytes | None:
        """Return the value of a key; None if there is none."""
        ...

    def remove(self, prefix: str) -> None:
        """Remove all keys that begin so."""


@dataclass(frozen=True, slots=True)
class Part:
    """The keys of a board that begin alike; fulfils `Store`."""

    board: Board
    prefix: str

    def set(self, key: str, value: bytes) -> None:
        self.board.put(self.prefix + key, value)

    def get(self, key: str, timeout: float) -> bytes:
        for _ in _looks(time.monotonic() + timeout):
            if (value := self.board.look(self.prefix + key)) is not None:
                return value
        raise TimeoutError(key)


@contextmanager
def gathered(board: Board, name: str, rank: int, size: int, timeout: float) -> Iterator[tuple[Part, float]]:
    """Yield a part of the board for these ranks alone, and the seconds that are left; in the end rank 0 removes it.

    Raises:
        RendezvousError: ranks did not come within `timeout` seconds, and the text names them; or another rank 0 has
            called for a group of this name meanwhile.
    """
    deadline = time.monotonic() + timeout
    gathering = _Gathering(board, f"{name}/", rank, size, timeout)
    if rank:
        yield Part(board, gathering.join(deadline)), _left(deadline)
        return
    call = secrets.token_hex(8)
    try:
        yield Part(board, gathering.call(call, deadline)), _left(deadline)
    finally:
        board.remove(f"{name}/{call}/")
        if board.look(f"{name}/call") == call.encode():
            board.remove(f"{name}/call")


@dataclass(frozen=True, slots=True)
class _Gathering:
    board: Board
    name: str
    rank: int
    size: int
    timeout: float

    def call(self, call: str, deadline: float) -> str:
        """Call the others, and return the beginning of the keys as soon as all have answered."""
        board, part = self.board, f"{self.name}{call}/"
        board.put(f"{self.name}call", call.encode())
        answers: dict[int, str] = {0: ""}
        for _ in _looks(deadline):
            if board.look(f"{self.name}call") != call.encode():
                raise self._refused(call, "another process has begun a group of the same name as its rank 0")
            for rank in range(self.size):
                if rank not in answers and (answer := board.look(f"{part}answer/{rank}")) is not None:
                    answers[rank] = answer.decode()
            if len(answers) == self.size:
                board.put(f"{part}confirmed", json.dumps([answers[rank] for rank in range(self.size)]).encode())
                return part
        missing = [rank for rank in range(self.size) if rank not in answers]
        raise self._refused(call, f"{ranks_in_words(missing)} of {self.size} did not come within {self.timeout:g} s")

    def _refused(self, call: str, why: str) -> RendezvousError:
        """Return an error that the others get as well."""
        self.board.put(f"{self.name}refused", json.dumps([call, why]).encode())
        return RendezvousError(f"rank 0: {why}")

    def join(self, deadline: float) -> str:
        """Answer rank 0's call, and return the beginning of the keys as soon as the answer is confirmed."""
        board, answer, part, call = self.board, secrets.token_hex(8), "", b""
        for _ in _looks(deadline):
            new = board.look(f"{self.name}call")
            if new is not None and new != call:
                call, part = new, f"{self.name}{new.decode()}/"
                board.put(f"{part}answer/{self.rank}", answer.encode())
            if not part:
                continue
            confirmed = json.loads(board.look(f"{part}confirmed") or b"[]")
            if answer in confirmed:
                return part
            self._raise_if_refused(call)
        raise RendezvousError(f"rank {self.rank}: {self._reason(part, call)}")

    def _raise_if_refused(self, call: bytes) -> None:
        refused = json.loads(self.board.look(f"{self.name}refused") or b'["", ""]')
        if refused[0] == call.decode():
            raise RendezvousError(f"rank {self.rank}: rank 0 has given the group up: {refused[1]}")

    def _reason(self, part: str, call: bytes) -> str:
        """Return why no answer of this rank was confirmed in time."""
        late = f"within {self.timeout:g} s"
        if not part:
            return f"rank 0 of {self.size} did not come {late}"
        others = [each for each in range(1, self.size) if each != self.rank]
        missing = [each for each in others if self.board.look(f"{part}answer/{each}") is None]
        self._raise_if_refused(call)  # rank 0 says why, before it removes the answers
        if missing:
            return f"{ranks_in_words(missing)} of {self.size} did not come {late}"
        return (
            f"rank 0 of {self.size} has not taken this process as a rank {late}; it has ended, or another process is "
            "this rank as well"
        )


def _looks(deadline: float) -> Iterator[None]:
    """Yield at once, and then again and again, until the deadline has passed."""
    pause = SOON
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(SELDOM, 1.5 * pause)


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())

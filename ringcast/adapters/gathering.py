"""Let ranks find a fresh part of a store that outlives their group, where an earlier one of that name may have died.

Rank 0 writes a call, a random number. Each other rank that sees a new call answers it, with a random number of its own.
Rank 0 confirms the answers that it has taken, and a rank goes on where its own is among them. So an answer that a dead
process has left is never taken for a living rank.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.errors import RendezvousError
from ringcast.wire.error_text import in_a_line

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
    """The keys of a board that belong to one call of rank 0; fulfils `Store`.

    Where rank 0 gives the group up, `get` raises `RendezvousError` with rank 0's reason.
    """

    board: Board
    name: str
    call: str
    rank: int

    def set(self, key: str, value: bytes) -> None:
        self.board.put(self._key(key), value)

    def get(self, key: str, timeout: float) -> bytes:
        for _ in _looks(time.monotonic() + timeout):
            if (value := self.look(key)) is not None:
                return value
            self.raise_if_refused()
        raise TimeoutError(key)

    def look(self, key: str) -> bytes | None:
        """Return the value of a key; None if there is none."""
        return self.board.look(self._key(key))

    def refuse(self, error: BaseException) -> None:
        """Give the group up: the others get the error as well."""
        why = str(error).removeprefix("rank 0: ") if isinstance(error, RendezvousError) else in_a_line(error)
        self.board.put(f"{self.name}/refused", json.dumps([self.call, why]).encode())

    def raise_if_refused(self) -> None:
        call, why = json.loads(self.board.look(f"{self.name}/refused") or b'["", ""]')
        if call == self.call:
            raise RendezvousError(f"rank {self.rank}: rank 0 has given the group up: {why}")

    def remove(self) -> None:
        self.board.remove(self._key(""))

    def _key(self, key: str) -> str:
        return f"{self.name}/{self.call}/{key}"


@contextmanager
def gathered(board: Board, name: str, rank: int, size: int, timeout: float) -> Iterator[tuple[Part, float]]:
    """Yield a part of the board for these ranks alone, and the seconds that are left; in the end rank 0 removes it.

    An error of rank 0, also one of the caller's, ends the wait of the others: they get `RendezvousError` with its text.

    Raises:
        RendezvousError: ranks did not come within `timeout` seconds, and the text names them; or another rank 0 has
            called for a group of this name meanwhile; or rank 0 has given the group up.
    """
    deadline = time.monotonic() + timeout
    gathering = _Gathering(board, name, rank, size, timeout)
    if rank:
        yield gathering.join(deadline), _left(deadline)
        return
    part = Part(board, name, secrets.token_hex(8), rank)
    try:
        gathering.call(part, deadline)
        yield part, _left(deadline)
    except BaseException as error:
        part.refuse(error)  # before the part is removed, where others look for their keys
        raise
    finally:
        part.remove()
        if board.look(f"{name}/call") == part.call.encode():
            board.remove(f"{name}/call")


@dataclass(frozen=True, slots=True)
class _Gathering:
    board: Board
    name: str
    rank: int
    size: int
    timeout: float

    def call(self, part: Part, deadline: float) -> None:
        """Call the others, and return as soon as all have answered."""
        board, call = self.board, part.call.encode()
        board.put(f"{self.name}/call", call)
        answers: dict[int, str] = {0: ""}
        for _ in _looks(deadline):
            if board.look(f"{self.name}/call") != call:
                raise RendezvousError("rank 0: another process has begun a group of the same name as its rank 0")
            for rank in range(self.size):
                if rank not in answers and (answer := part.look(f"answer/{rank}")) is not None:
                    answers[rank] = answer.decode()
            if len(answers) == self.size:
                part.set("confirmed", json.dumps([answers[rank] for rank in range(self.size)]).encode())
                return
        missing = [rank for rank in range(self.size) if rank not in answers]
        raise RendezvousError(f"rank 0: {self._did_not_come(missing)}")

    def join(self, deadline: float) -> Part:
        """Answer rank 0's call, and return the part for it as soon as the answer is confirmed."""
        answer, part = secrets.token_hex(8), None
        for _ in _looks(deadline):
            new = self.board.look(f"{self.name}/call")
            if new is not None and (part is None or new.decode() != part.call):
                part = Part(self.board, self.name, new.decode(), self.rank)
                part.set(f"answer/{self.rank}", answer.encode())
            if part is None:
                continue
            if answer in json.loads(part.look("confirmed") or b"[]"):
                return part
            part.raise_if_refused()
        raise RendezvousError(f"rank {self.rank}: {self._reason(part)}")

    def _reason(self, part: Part | None) -> str:
        """Return why no answer of this rank was confirmed in time."""
        if part is None:
            return self._did_not_come([0])
        others = [each for each in range(1, self.size) if each != self.rank]
        missing = [each for each in others if part.look(f"answer/{each}") is None]
        part.raise_if_refused()  # rank 0 says why, before it removes the answers
        if missing:
            return self._did_not_come(missing)
        return (
            f"rank 0 of {self.size} has not taken this process as a rank within {self.timeout:g} s; it has ended, or "
            "another process is this rank as well"
        )

    def _did_not_come(self, missing: Sequence[int]) -> str:
        return f"{ranks_in_words(missing)} of {self.size} did not come within {self.timeout:g} s"


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

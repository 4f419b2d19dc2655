"""Serve a benchmark on a rank of a system under test: execute commands from a Unix socket, and answer them.

It needs the standard library only, since peers run it in virtual environments of their own. Both directions carry one
JSON object per line. The rank begins with its system, rank, size, version and host; then it answers commands:

| command | answer |
|---|---|
| {"do": "prepare", "case": {...}} | {"ok": true}, or {"unsupported": true} |
| {"do": "check"} | {"ok": true}, or {"wrong": the error in the result} |
| {"do": "measure", "warmup": w, "repeat": k} | {"seconds": [...], "algorithm": ..., "nblocks": ..., "rounds": ...} |
| {"do": "trace"} | {"events": [...]} of one repetition |
| {"do": "quit"} | none |

An exception becomes {"error": its text}. A rank without a command sleeps in `recv`, with any library, so that the jobs
of several systems can live side by side and be measured in turn.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol, TextIO


class System(Protocol):
    """A library under test, on one of its ranks.

    A case is `ringcast.commands.bench.cases.Case.to_json()`; `Case` defines one repetition of it.
    """

    name: str
    version: str
    rank: int
    size: int

    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def prepare(self, case: Mapping[str, Any]) -> Callable[[], object] | None:
        """Allocate the buffers and return a function that does the case once; None if the library cannot do it."""

    def check(self) -> str:
        """Do the prepared case once, on cleared buffers, and return the error in the result; "" if it is right.

        Call this before the case is measured: buffers of reductions in place change with each repetition.
        """

    def chosen(self) -> dict[str, Any]:
        """Return algorithm, nblocks and rounds of the prepared case, as far as they are known."""

    def trace(self, *, barrier: bool = False) -> list[Any]:
        """Do the prepared case once and return its events as JSON; with `barrier` a barrier and its events come first.

        Raises:
            NotImplementedError: the library has no events.
        """


def measure(system: System, call: Callable[[], object], warmup: int, repeat: int) -> list[float]:
    """Return this rank's seconds of each of `repeat` calls, each after a barrier, after `warmup` untimed calls."""
    seconds = []
    for i in range(warmup + repeat):
        system.barrier()
        start = perf_counter()
        call()
        end = perf_counter()
        if i >= warmup:
            seconds.append(end - start)
    return seconds


def serve(system: System, path: str) -> None:
    """Execute commands from the Unix socket at `path`, until the command quit or the end of the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw", encoding="utf-8") as stream:
            hello = {field: getattr(system, field) for field in ("name", "rank", "size", "version")}
            _tell(stream, {**hello, "host": socket.gethostname()})
            worker = _Worker(system)
            for line in stream:
                command = json.loads(line)
                if command["do"] == "quit":
                    return
                _tell(stream, worker.answer(command))


def _tell(stream: TextIO, fields: Mapping[str, Any]) -> None:
    stream.write(json.dumps(fields) + "\n")
    stream.flush()


class _Worker:
    def __init__(self, system: System) -> None:
        self._system = system
        self._call: Callable[[], object] | None = None

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        try:
            match command["do"]:
                case "prepare":
                    self._call = self._system.prepare(command["case"])
                    return {"unsupported": True} if self._call is None else {"ok": True}
                case "check":
                    wrong = self._system.check()
                    return {"wrong": wrong} if wrong else {"ok": True}
                case "measure":
                    return self._measure(command["warmup"], command["repeat"])
                case "trace":
                    return {"events": self._system.trace()}
                case unknown:
                    return {"error": f"there is no command {unknown!r}"}
        except Exception as error:  # any error of a library is noted in its row, and the rank lives on
            return {"error": f"{type(error).__name__}: {error}"}

    def _measure(self, warmup: int, repeat: int) -> dict[str, Any]:
        assert self._call is not None, "measure comes after a prepare that succeeded"
        return {"seconds": measure(self._system, self._call, warmup, repeat), **self._system.chosen()}

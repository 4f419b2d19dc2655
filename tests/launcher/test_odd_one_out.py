"""After a mismatch the ranks are named whose call differs from most others', whichever rank noticed it first."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringcast.errors import MISMATCH
from ringcast.monitoring.flight_record import Flights
from ringcast.wire.flight import Entry, Flight
from ringcast_launcher.decide.by_records import explained
from ringcast_launcher.decide.supervisor import TIMED_OUT
from ringcast_launcher.decide.verdict import Verdict
from support.cases import each
from support.patience import patience

LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
LIMIT = 120  # seconds; nothing here takes nearly as long


def entry(number: int, kind: int, **facts: Any) -> Entry:
    """A call of the communicator 1; equal kinds are equal calls."""
    made = {"collective": "allreduce", "op": f"op{kind}", "dtype": "int64", "shape": "(3,)"}
    made |= {"root": None, "algorithm": "ring", "nblocks": 1, "state": "failed"} | facts
    rest: dict[str, Any] = {"round": 0, "rounds": 1, "waiting": 0, "waiting_for": (), "begun": 0.0, "start": 0.0}
    return Entry(number, 1, number, 0, kind, **made, **rest, end=1.0, file="prog.py", line=7)


def records(*calls: tuple[Entry, ...]) -> Flights:
    return [Flight(rank, len(calls), 1, "host", 0.0, 0.0, None, made) for rank, made in enumerate(calls)]


def flights(*kinds: int | None) -> Flights:
    """The records of ranks that all made call 1, and then one of these kinds; None: no call."""
    first = entry(1, 99, state="done")
    return records(*((first, entry(2, kind)) if kind is not None else (first,) for kind in kinds))


def noticed(rank: int) -> Verdict:
    return Verdict(1, rank, f"failed: CollectiveMismatch: rank {rank}: {MISMATCH} 0 in allreduce #2", "Traceback")


@each("kinds", [kinds for p in (2, 3, 4, 5) for kinds in itertools.product(range(3), repeat=p) if len(set(kinds)) > 1])
def test_the_rank_to_name_is_the_same_whoever_noticed_it(kinds: tuple[int, ...]) -> None:
    """The oracle counts: a rank of a smaller group than the largest, or the lowest one where there is no largest."""
    counts = Counter(kinds).most_common()
    usual = counts[0][0] if counts[0][1] > counts[1][1] else None
    odd = [rank for rank, kind in enumerate(kinds) if (kind == kinds[0] if usual is None else kind != usual)]
    others = set(range(len(kinds))).difference(odd)
    for rank in range(len(kinds)):
        found = explained(noticed(rank), flights(*kinds))
        assert found.rank == odd[0]
        subject, _, rest = found.how.partition(" differs from that of rank")
        assert set(map(int, re.findall(r"\d+", rest.partition(":")[0]))) == others
        assert subject.endswith("its #2 allreduce" if len(odd) == 1 else f"of ranks {', '.join(map(str, odd))}")


def test_ranks_that_made_no_call_have_no_voice() -> None:
    assert explained(noticed(0), flights(1, None, 0, 0)).rank == 0
    assert explained(noticed(0), flights(None, 1, 0, 0)).rank == 1


def test_the_traceback_is_that_of_the_rank_which_noticed_it() -> None:
    assert explained(noticed(0), flights(0, 0, 1)).witness == 0
    assert explained(noticed(2), flights(0, 0, 1)).witness is None


def test_the_first_call_that_differs_counts() -> None:
    calls = (entry(1, 1), entry(2, 5)), (entry(1, 1), entry(2, 4)), (entry(1, 2), entry(2, 4)), (entry(1, 1),)
    assert explained(noticed(0), records(*calls)).rank == 2


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        ({"root": 1}, {"root": 0}, "its #2 allreduce differs from that of ranks 0, 1: root 1, theirs 0; at prog.py:7"),
        ({"dtype": "f4", "algorithm": "a"}, {"dtype": "f8", "algorithm": "b"}, "dtype f4, theirs f8; at"),
        ({"algorithm": "a"}, {"algorithm": "b"}, "algorithm a, theirs b; at"),
        ({"op": ""}, {"op": "MAX"}, "op none, theirs MAX; at"),
        ({}, {}, "ranks 0, 1: other arguments; at"),
        (
            {"collective": "gather", "shape": "(3,)"},
            {"collective": "gather", "shape": "(2,)"},
            "shape (3,), theirs (2,) (gatherv takes any number of rows); at",
        ),
        ({"dtype": "object", "shape": "()"}, {"dtype": "int64", "shape": "()"}, "pass int(value) or np.int64("),
        (
            {"collective": "barrier"},
            {},
            "it made #2 barrier at prog.py:7, where ranks 0, 1 made allreduce at",
        ),
    ],
)
def test_what_differs_is_told(mine: dict[str, Any], theirs: dict[str, Any], words: str) -> None:
    usual, odd = (entry(2, kind, **{"op": "SUM", **facts}) for kind, facts in enumerate((theirs, mine)))
    assert words in explained(noticed(0), records((usual,), (usual,), (odd,))).how


def test_where_all_differ_all_are_shown() -> None:
    found = explained(noticed(0), records(*((entry(2, k, op="SUM", shape=f"({k},)"),) for k in range(3)))).how
    assert "its #2 allreduce differs from that of ranks 1, 2: shape (0,), theirs (1,) or (2,); at prog.py:7" in found
    found = explained(noticed(0), records(*((entry(2, k, op=f"op{k}"),) for k in range(9)))).how
    assert "op op0, theirs op1 or op2 or op3 or others; at" in found
    texts = [(entry(2, k, op="", dtype=f"U{k}"),) for k in (1, 2, 3)]
    assert "dtype U1, theirs U2 or U3; at" in explained(noticed(0), records(*texts)).how  # no width of two fits all
    calls = [(entry(2, k, collective=name),) for k, name in enumerate(("scan", "barrier", "gather"))]
    assert "it made #2 scan at prog.py:7, where ranks 1, 2 made barrier or gather at prog.py:7" in (
        explained(noticed(0), records(*calls)).how
    )


def test_the_last_message_that_was_not_taken_is_named_with_its_line() -> None:
    done = {"state": "done", "op": "", "dtype": ""}
    sends = [
        entry(0, 1, collective="send", shape=f"(to {to}, tag {tag})", **done) for to, tag in ((1, 5), (1, 6), (2, 7))
    ]
    untaken = Verdict(1, 1, "failed: it finished without taking a message of rank 0; every message needs a recv")
    found = explained(untaken, records(tuple(sends), (), ()))
    assert found == replace(untaken, how=f"{untaken.how}; the last one: send (to 1, tag 6) at prog.py:7")
    for unknown in records((), (), ()), [None, None, None], []:
        assert explained(untaken, unknown) == untaken


def test_where_there_was_no_mismatch_nothing_is_changed() -> None:
    other = Verdict(1, 0, "failed: ValueError: 1"), Verdict(143, how="ended by SIGTERM"), Verdict(TIMED_OUT, how="late")
    for verdict in other:
        assert explained(verdict, flights(0, 1, 1)) == verdict
    assert explained(noticed(0), flights(0, 0)) == noticed(0)
    assert explained(noticed(0), [None, None]) == noticed(0)


PROGRAM = """
import sys
import numpy as np
import ringcast
comm = ringcast.init()
what, *odd = sys.argv[1:]
odd = str(comm.rank) in odd  # its first call: an earlier one could fail on a slow rank
if what == "op":
    comm.allreduce(1.0, ringcast.MAX if odd else ringcast.SUM)
elif what == "dtype":
    comm.allreduce(np.zeros(3, "f4" if odd else "f8"))
elif what == "root":
    comm.bcast([1], root=1 if odd else 0)
elif what == "counts":
    counts = [*range(1, comm.size), 0 if odd else comm.size]
    comm.allgatherv(np.zeros(counts[comm.rank]), counts)
elif what == "order":
    calls = [comm.barrier, lambda: comm.allgather(1)]
    for call in reversed(calls) if odd else calls:
        call()
"""


@pytest.mark.live
@pytest.mark.parametrize(
    ("p", "odd", "named"),
    [
        pytest.param(3, [1], 1, marks=pytest.mark.smoke),
        (5, [4], 4),
        (8, [2], 2),
        (8, [2, 5], 2),
        (4, [1, 2], 0),
        (2, [1], 0),
    ],
)
@pytest.mark.parametrize("what", ["op", "dtype", "root", "counts", "order"])
def test_jobs_name_the_odd_one(tmp_path: Path, what: str, p: int, odd: list[int], named: int) -> None:
    (tmp_path / "prog.py").write_text(PROGRAM)
    command = [*LAUNCH, "-n", str(p), str(tmp_path / "prog.py"), what, *map(str, odd)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(LIMIT), check=False)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"ringcast-launch: rank {named} ("), done.stderr
    assert "failed: CollectiveMismatch: " in last

"""Random programs for mpi4py run on ringcast.MPI and on MPICH, and must agree."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringcast.commands.bench import peers
from support.patience import patience

LONGEST = 30  # seconds that a program takes
PROGRAM = Path(__file__).parents[1] / "support/programs/mpi_calls.py"
pytestmark = pytest.mark.long

CODES = ("i1", "i4", "i8", "f4", "f8", "u2")  # typestr of numpy; MPI.Datatype.fromcode takes them
REDUCTIONS = ("Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block")
MOVES = ("bcast", "gather", "scatter", "allgather", "alltoall")
IRREGULAR = ("gatherv", "scatterv", "allgatherv", "alltoallv", "alltoallw")
OTHERS = ("user_op", "located", "objects", "exchange", "grid", "between")
WRONG = ("root", "dest", "source", "tag", "count", "type", "op", "null", "group", "dims", "truncate")


@st.composite
def shapes(draw: st.DrawFn, code: str, n: int) -> list[Any]:
    """Return a datatype of `n` items of a base, with gaps or in another order than in memory."""
    kind = draw(st.sampled_from(["plain", "vector", "indexed", "struct"]))
    if kind == "vector":
        length = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        return [kind, code, n // length, length, length + draw(st.integers(0, 2))]
    if kind == "indexed":
        places = draw(st.permutations(range(n)))
        return [kind, code, [1] * n, [2 * place for place in places]]
    if kind == "struct" and n > 1:
        return [kind, code, n - 1, 8 * draw(st.integers(0, 2))]
    return ["plain", code, n]


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    code, n = draw(st.sampled_from(CODES)), draw(st.integers(1, 6))
    name = draw(st.sampled_from([*MOVES, *IRREGULAR, *OTHERS, "reduction", "reduce_scatter", "ring", "wrong"]))
    bits = code[0] != "f"
    ops = ["SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", *(["BAND", "BOR", "BXOR"] if bits else [])]
    if not bits:
        ops = ops[:4]
    return {
        "do": name,
        "comm": draw(st.sampled_from(["dup", "split", "created"])),
        "form": draw(st.sampled_from(["", "I", "init"])),
        "give": draw(shapes(code, n)),
        "take": draw(shapes(code, n)),
        "code": code,
        "count": draw(st.sampled_from([0, 1, 2, 3, 700])),
        "counts": draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)),
        "root": draw(st.integers(0, 6)),
        "stride": draw(st.integers(1, 5)),
        "gap": draw(st.integers(0, 2)),
        "distances": draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)),
        "any": draw(st.booleans()),
        "send": draw(st.sampled_from(["Isend", "Issend", "Irsend"])),
        "op": draw(st.sampled_from(ops)),
        "in_place": draw(st.booleans()),
        "name": draw(st.sampled_from(WRONG if name == "wrong" else REDUCTIONS)),
    }


class Job:
    """A job that answers programs, one after the other; a new one is started where the last one has failed."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._running: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._end()

    def answer(self, program: str) -> Any:
        """Return what the ranks print; what they say on standard error if they fail, or nothing comes."""
        running = self._running = self._running or subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stdin is not None
        assert running.stdout is not None
        print(program, file=running.stdin, flush=True)
        line = running.stdout.readline() if select.select([running.stdout], [], [], patience(LONGEST))[0] else ""
        return json.loads(line) if line else self._end()

    def _end(self) -> str:
        assert self._running is not None
        self._running.terminate()
        _, text = self._running.communicate()
        self._running = None
        return text


@pytest.fixture(scope="module")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with mpi4py and MPICH of the package index."""
    return peers.install("mpich", tmp_path_factory.mktemp("mpich"))


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_random_programs_agree(p: int, mpich: Path) -> None:
    ours = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--as-mpi4py", "--stdin", "0", "--output", "none"]
    theirs = [str(mpich / "bin/mpiexec"), "-n", str(p), str(mpich / "bin/python"), str(PROGRAM)]
    with Job([*ours, sys.executable, str(PROGRAM)]) as one, Job(theirs) as other:

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(st.lists(calls(), min_size=1, max_size=6))
        def agree(program: list[dict[str, Any]]) -> None:
            text = json.dumps(program)
            expected = other.answer(text)
            assert isinstance(expected, list), expected
            assert one.answer(text) == expected

        agree()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_object_calls_return_the_same_copies(p: int, mpich: Path) -> None:
    program = str(PROGRAM.with_name("mpi_aliases.py"))
    ours = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--as-mpi4py", "--output", "none"]
    theirs = [str(mpich / "bin/mpiexec"), "-n", str(p), str(mpich / "bin/python")]
    found = [
        subprocess.run(
            [*command, program], capture_output=True, text=True, timeout=patience(LONGEST), check=True
        ).stdout
        for command in ([*ours, sys.executable], theirs)
    ]
    assert json.loads(found[0]) == json.loads(found[1])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_calls_with_nothing_to_move_agree(p: int, mpich: Path) -> None:
    """Where MPICH refuses a datatype that is null, or not committed, of no elements, ringcast may take it."""
    program = str(PROGRAM.with_name("mpi_corners.py"))
    ours = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--as-mpi4py", "--output", "none"]
    theirs = [str(mpich / "bin/mpiexec"), "-n", str(p), str(mpich / "bin/python")]
    found, expected = (
        json.loads(
            subprocess.run(
                [*command, program], capture_output=True, text=True, timeout=patience(LONGEST), check=True
            ).stdout
        )
        for command in ([*ours, sys.executable], theirs)
    )
    for rank, outcomes in enumerate(expected):
        assert len(outcomes) > 400
        for name, outcome in outcomes.items():
            refused = outcome == "MPI.Exception 3" and found[rank][name].startswith("ok")
            assert found[rank][name] == outcome or refused, (rank, name)

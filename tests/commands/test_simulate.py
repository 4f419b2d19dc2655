"""`ringcast simulate`: what it tells of an algorithm is what the simulator, or the formulas, say."""

from __future__ import annotations

import doctest
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.analysis.simulate import simulate
from ringcast.commands import cli
from ringcast.commands import compare as comparison
from ringcast.commands.compare import ComparedCase, Row, compare
from ringcast.engine import slot_sizes
from ringcast.schedules import circulant
from ringcast.wire.collective import COLLECTIVES
from support.patience import patience


def asked(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert cli.main(["simulate", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["simulate", *argv]) == 2
    return capsys.readouterr().err


def case_of(collective: str, p: int, nbytes: int) -> ComparedCase:
    params = Params(
        p, p // 2 if COLLECTIVES[collective].rooted else 0, distance=p // 3 if COLLECTIVES[collective].distance else 0
    )
    return ComparedCase(collective, params, nbytes, alpha=3.0, beta=0.5)


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.algorithm: row for row in rows}


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(slot_sizes)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize("p", [1, 2, 5, 16, 33])
def test_the_simulator_and_the_formulas_agree(collective: str, p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(collective, p, 0 if collective == "barrier" else 2 * 16 * p)  # equal parts; blocks nearly so
    simulated = by_name(compare(case))
    legal = [name for name, entry in ALGORITHMS[collective].items() if not entry.fits(case.params)]
    assert sorted(simulated) == sorted(legal)
    assert not any(row.by_formula for row in simulated.values())
    monkeypatch.setattr(comparison, "MOST", -1)
    monkeypatch.setattr(comparison, "AT_ONCE", ())
    for row in compare(case):
        assert row.by_formula
        known = simulated[row.algorithm]
        assert (row.rounds, row.nblocks) == (known.rounds, known.nblocks)
        slack = 0.5 * row.rounds  # a byte more or less in each message
        assert known.seconds == pytest.approx(row.seconds, rel=1e-9, abs=slack), row.algorithm


@pytest.mark.parametrize("p", [1, 2, 17, 33, 65])
@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_what_is_simulated_at_once_is_what_each_rank_does(p: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for collective in "bcast", "reduce":
        case = replace(case_of(collective, p, nbytes), nblocks=7)
        (at_once,) = compare(case, ["circulant"])
        with monkeypatch.context() as patch:
            patch.setattr(comparison, "AT_ONCE", ())
            assert compare(case, ["circulant"]) == [at_once]


def test_rows_say_what_the_simulator_says() -> None:
    counts = (5, 0, 3, 1, 4)
    (row,) = compare(ComparedCase("allgatherv", Params(5, counts=counts), 13, 2, 1.0, 0.25), ["pipelined_ring"])
    schedules = [build("allgatherv", "pipelined_ring", Params(5, 0, 2, counts), rank) for rank in range(5)]
    report = simulate(schedules, [2, 3, 3, 1, 2, 2], alpha=1.0, beta=0.25)
    assert (row.rounds, row.seconds, row.messages) == (report.rounds, report.time, report.messages)
    assert row.volume == report.volume


@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize(
    "network",
    ["full", "mesh:4x4", *(pytest.param(n, marks=pytest.mark.long) for n in ("ring", "hypercube", "crossbar:2x8"))],
)
@pytest.mark.parametrize("nbytes", [16_000, *(pytest.param(few, marks=pytest.mark.long) for few in (0, 1))])
def test_the_fastest_on_the_network_comes_first(collective: str, network: str, nbytes: int) -> None:
    rows = compare(replace(case_of(collective, 16, nbytes), network=network))
    assert [row.order for row in rows] == sorted(row.order for row in rows)
    assert all((row.traffic is None) == (network == "full") for row in rows)
    for row in rows:  # ranks that wait for each other, and share links, are no faster
        assert row.traffic is None or row.traffic.time >= row.seconds * (1 - 1e-9)


def test_an_algorithm_for_the_hypercube_contends_on_a_ring() -> None:
    rings = by_name(compare(replace(case_of("allgather", 16, 16_000), network="ring")))
    assert rings["ring"].traffic is not None
    assert rings["hypercube"].traffic is not None
    assert (rings["ring"].traffic.congestion, rings["hypercube"].traffic.congestion) == (1, 8)


def test_a_hundred_thousand_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.process_time()
    found = asked(capsys, "bcast", "-n", "100000", "--nblocks", "100")
    assert time.process_time() - begin < patience(2)
    rows = {row["algorithm"]: row for row in found["rows"]}
    assert rows["circulant"]["rounds"] == 99 + 17
    assert rows["circulant"]["messages"] == 99_999 * 100
    assert not rows["circulant"]["by_formula"]
    assert rows["linear_pipeline"] | {"seconds": 0} == {
        "algorithm": "linear_pipeline",
        "nblocks": 100,
        "nbytes": 1_000_000,
        "rounds": 100_098,
        "seconds": 0,
        "messages": None,
        "volume": None,
        "traffic": None,
        "by_formula": True,
    }


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bcast", "-n", "20", "--root", "3", "--nblocks", "8", "--nbytes", "8:80", "--alpha", "1", "--beta", "0"]
    assert cli.main(["simulate", *argv]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("bcast on 20 ranks, alpha 1 s, beta 0 s per byte: 8 bytes in all\n")
    rounds = simulate([circulant.bcast(20, r, nblocks=8) for r in range(20)]).rounds
    assert [line.split() for line in first.splitlines()[1:3]] == [
        ["algorithm", "blocks", "rounds", "seconds", "messages", "volume"],
        ["circulant", "8", str(rounds), str(rounds), "152", "12"],
    ]
    assert ": 80 bytes in all" in second
    assert cli.main(["simulate", "allgather", "-n", "6", "--network", "ring", "--algorithm", "circulant,ring"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()[1:]
    assert head.endswith("volume  congestion  crossings  hops  seconds on ring")
    assert sorted(row.split()[0] for row in rows) == ["circulant", "ring"]


def test_parts_are_as_the_counts_say(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "allgatherv", "-n", "3", "--counts", "5,0,3", "--algorithm", "ring")
    assert [(row["nbytes"], row["volume"]) for row in found["rows"]] == [(8, 8)]
    found = asked(capsys, "scatter", "-n", "3", "--counts", "0,0,0", "--algorithm", "linear")
    assert [(row["nbytes"], row["volume"]) for row in found["rows"]] == [(0, 0)]
    assert asked(capsys, "barrier", "-n", "3")["rows"][0]["nbytes"] == 0


def test_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "all.png"
    found = asked(capsys, "bcast", "-n", "9", "--network", "ring", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted({row["nbytes"] for row in found["rows"]}) == [10**k for k in range(2, 9)]


def test_what_cannot_be_simulated_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no such algorithm; known are circulant" in refused(capsys, "bcast", "--algorithm", "magic")
    assert "power of two ranks, not 6" in refused(capsys, "alltoall", "-n", "6", "--algorithm", "ring,xor")
    assert "no group of 0 ranks" in refused(capsys, "bcast", "-n", "0")
    assert "root 9 is not one of 8 ranks" in refused(capsys, "bcast", "--root", "9")
    assert "root 9 is not one of 8 ranks" in refused(capsys, "bcast", "--root", "9", "--algorithm", "circulant")
    assert "2 counts for 3 ranks" in refused(capsys, "allgatherv", "-n", "3", "--counts", "1,2")
    assert "'lots' is not a size" in refused(capsys, "bcast", "--nbytes", "lots")
    assert "--alpha must be a number of seconds, 0 or more, not -1.0" in refused(capsys, "bcast", "--alpha", "-1")
    assert "--beta must be a number of seconds" in refused(capsys, "bcast", "--beta", "nan")
    assert "mesh:4x4 has 16 ranks, not 8; use mesh:2x4" in refused(capsys, "bcast", "--network", "mesh:4x4")
    assert "it does not cut into blocks" in refused(capsys, "alltoall", "--nblocks", "2")
    assert "take fewer ranks or blocks" in refused(
        capsys, "bcast", "-n", "100000", "--nblocks", "100", "--network", "ring"
    )
    assert "no file can be written there" in refused(capsys, "bcast", "--plot", str(tmp_path / "none/a.png"))
    assert "but a barrier has no bytes" in refused(capsys, "barrier", "--plot", str(tmp_path / "a.png"))
    with pytest.raises(SystemExit):
        cli.main(["simulate", "brodcast"])


@pytest.mark.parametrize("file", ["p.json", "p.html", "p.HTML"])
def test_a_simulated_call_has_a_profile(tmp_path: Path, file: str) -> None:
    arguments = ["simulate", "bcast", "-n", "33", "--nbytes", "1m", "--algorithm", "circulant,binary_tree"]
    assert cli.main([*arguments, "--profile", str(tmp_path / file)]) == 0
    text = (tmp_path / file).read_text()
    assert "circulant" in text
    if file == "p.json":
        report = json.loads(text)
        assert [rank["rank"] for rank in report["ranks"]] == list(range(33))
        site = report["sites"][0]
        assert report["span"] == pytest.approx(site["predicted"], rel=0.01)
        assert site["median"] <= site["slowest"]


def test_rounds_of_many_ranks_are_kept_without_messages(tmp_path: Path) -> None:
    assert cli.main(["simulate", "allreduce", "-n", "101", "--profile", str(tmp_path / "p.json")]) == 0
    rounds = json.loads((tmp_path / "p.json").read_text())["sites"][0]["rounds"]
    assert (rounds["size"], rounds["messages"]) == (101, [])
    assert {rank for rank, *_ in rounds["measured"]} == set(range(101))


def test_a_simulated_profile_can_be_a_table_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "bcast", "-n", "3", "--profile", "-"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("bcast on 3 ranks")
    assert "call sites" in error


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--profile", "x.txt"], "expected a file"), (["--profile", "x.html", "--network", "ring"], "--profile needs")],
)
def test_a_profile_that_cannot_be_made_is_refused_at_once(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["simulate", "allgather", "-n", "4", *more]) == 2
    assert said in capsys.readouterr().err

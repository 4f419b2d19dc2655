"""`ringcast explain`: it lists the registry, and shows the messages of the schedules."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import pytest

from ringcast.algorithms import ALGORITHMS, FAMILIES, Params, build, catalogue
from ringcast.analysis import tables
from ringcast.analysis.rounds import Transfer, messages
from ringcast.analysis.simulate import simulate
from ringcast.commands import cli
from ringcast.schedules.blocks import schedule_tables
from support.cases import each
from support.places import ROOT

NAMES = {(collective, name) for collective, named in ALGORITHMS.items() for name in named}
# Broadcast of 3 blocks by 5 ranks: round, from, to, block.
KNOWN = [
    *([0, 0, 2, 0], [1, 0, 3, 1], [2, 0, 1, 2], [2, 2, 3, 0], [2, 3, 4, 1], [3, 0, 2, 2], [3, 2, 4, 0], [3, 4, 1, 1]),
    *([4, 0, 3, 2], [4, 1, 4, 2], [4, 3, 1, 0], [4, 4, 2, 1]),
]


def asked(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert cli.main(["explain", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["explain", *argv]) == 2
    return capsys.readouterr().err


def test_the_list_has_every_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    listed = asked(capsys, "--list")
    assert {(one["collective"], one["algorithm"]) for one in listed} == NAMES
    assert len(listed) == len(NAMES)
    for one in listed:
        assert all(one[field] for field in ("paper", "place", "rounds", "volume", "tested"))
    assert cli.main(["explain", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(name in line for line in lines for name in ("circulant_blocks",)) == 2  # allgatherv, reduce_scatter


def names_in(file: str) -> set[str]:
    return set(re.findall(r"\w+", (ROOT / file).read_text()))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_the_file_that_states_the_laws_of_a_family_knows_it(family: ModuleType) -> None:
    from_where = (getattr(one, "__module__", None) or getattr(one, "__name__", "") for one in vars(family).values())
    schedules = {name.rpartition(".")[2] for name in from_where if name.startswith("ringcast.schedules.")}
    told = names_in(family.TESTED)
    for entry in family.ALGORITHMS:
        assert told & {entry.name, *schedules}, f"{entry.name} or one of {schedules}"


def test_where_an_algorithm_is_tested_is_its_familys_file_and_those_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    files = {(one["collective"], one["algorithm"]): one["tested"] for one in asked(capsys, "--list")}
    assert files["scan", "doubling"][0] == "tests/collectives/test_scan.py"
    assert files["merge_sorted", "allgather"][0] == "tests/collectives/test_merge.py"
    for found in files.values():
        assert found[1:] == list(catalogue.TESTED)
        assert all((ROOT / file).is_file() for file in found)
    for file in catalogue.TESTED:
        assert {"ALGORITHMS", "ENTRIES"} <= names_in(file)


def test_the_page_is_the_list() -> None:
    assert catalogue.markdown() in (ROOT / "docs/understand/algorithms.md").read_text()


def test_a_broadcast_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "bcast", "-n", "5", "--nblocks", "3", "--algorithm", "circulant")
    assert (found["p"], found["rounds"], found["skips"]) == (5, 5, [1, 2, 3, 5])
    assert found["messages"] == KNOWN
    recv, send = schedule_tables(5)
    assert found["recv"] == recv.T.tolist()
    assert found["send"] == send.T.tolist()
    assert found["baseblock"][1:] == [0, 1, 2, 0]


@pytest.mark.parametrize("p", [1, 2, 3, 33, 65])
def test_the_rank_that_is_the_root_has_its_schedule(capsys: pytest.CaptureFixture[str], p: int) -> None:
    found = asked(capsys, "bcast", "-n", str(p), "--nblocks", "2", "--root", str(p - 1), "--algorithm", "circulant")
    recv, _ = schedule_tables(p)
    assert found["recv"][p - 1] == recv.T.tolist()[0]
    assert all(dest != p - 1 for _, _, dest, _ in found["messages"])


@each(
    "collective, name, p",
    [(*key, p) for key in sorted(NAMES) for p in (1, 2, 5, 8) if not ALGORITHMS[key[0]][key[1]].fits(Params(p))],
)
def test_messages_are_those_of_the_simulator(collective: str, name: str, p: int) -> None:
    params = Params(p, p // 2, 3 if ALGORITHMS[collective][name].blocks else 1, distance=p // 2)
    schedules = [build(collective, name, params, rank) for rank in range(p)]
    moved, report = messages(schedules), simulate(schedules)
    assert len(moved) == report.messages
    assert [one.round for one in moved] == sorted(one.round for one in moved)
    for end in "source", "dest":  # one-ported
        assert len({(one.round, getattr(one, end)) for one in moved}) == len(moved)
    assert max((one.round for one in moved), default=-1) + 1 >= report.rounds


def test_rounds_of_ranks_that_are_in_different_steps() -> None:
    schedules = [build("gather", "linear", Params(3), rank) for rank in range(3)]
    assert [(one.round, one.source, one.dest) for one in messages(schedules)] == [(0, 2, 0), (1, 1, 0)]
    assert Transfer(1, 1, 0, (1,)) in messages(schedules)


def test_the_text_names_parts_and_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["allgatherv", "-n", "3", "--counts", "5,0,3", "--algorithm", "pipelined_ring", "--nblocks", "2"]
    assert cli.main(["explain", *argv]) == 0
    text = capsys.readouterr().out
    assert "allgatherv by pipelined_ring on 3 ranks, 2 blocks" in text
    assert "round 0: 0>2 0.0, 2>1 2\n" in text
    assert "predicted for 8 bytes in all" in text
    assert cli.main(["explain", "bcast", "-n", "20", "--nblocks", "8", "--root", "3", "--tables"]) == 0
    assert "baseblock     | 0| 0| 1| 2  0| 3" in capsys.readouterr().out


def test_a_broadcast_as_data_has_its_schedules_whatever_is_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    for p, n in (5, 3), (2, 1), (9, 1), (17, 100), (1, 1):
        assert cli.main(["explain", "bcast", "-n", str(p), "--nblocks", str(n), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {"p", "skips", "baseblock", "recv", "send", "rounds", "messages"} <= set(told)
        assert told["rounds"] == (n - 1 + (p - 1).bit_length() if p > 1 else 0)
        assert len(told["recv"]) == len(told["send"]) == p


def test_tables_are_those_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    for collective in "bcast", "allgatherv", "reduce_scatter":
        assert cli.main(["explain", collective, "-n", "20", "--tables"]) == 0
        assert tables.table(20) in capsys.readouterr().out
    assert cli.main(["explain", "bcast", "-n", "9", "--nblocks", "3", "--tables"]) == 0
    assert tables.table_5() in capsys.readouterr().out


def test_the_list_of_a_collective(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "scan", "--list", "--json"]) == 0
    assert {entry["algorithm"] for entry in json.loads(capsys.readouterr().out)} == set(ALGORITHMS["scan"])


def test_ranks_that_share_hosts_are_told_by_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "bcast", "-n", "6", "--ranks-per-host", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("bcast by full_lane on 6 ranks, ")
    assert "round 0: 0>1 " in text  # the root scatters within its host
    assert cli.main(["explain", "bcast", "-n", "6"]) == 0
    assert capsys.readouterr().out.startswith("bcast by circulant on 6 ranks, ")


def test_what_cannot_be_shown_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name a collective, or ask for the --list" in refused(capsys)
    assert "there is no such algorithm; known are circulant" in refused(capsys, "bcast", "--algorithm", "magic")
    assert "power of two ranks, not 6" in refused(capsys, "alltoall", "-n", "6", "--algorithm", "xor")
    assert "no group of 0 ranks" in refused(capsys, "bcast", "-n", "0")
    assert "root 9 is not one of 8 ranks" in refused(capsys, "bcast", "--root", "9")
    assert "2 counts for 3 ranks" in refused(capsys, "allgatherv", "-n", "3", "--counts", "1,2")
    assert "allreduce has no root" in refused(capsys, "allreduce", "--root", "1")
    assert "scan has no --counts; those of allgatherv" in refused(capsys, "scan", "-n", "2", "--counts", "1,2")
    assert "bcast has no distance" in refused(capsys, "bcast", "--distance", "2")
    assert "'-5' is not a size" in refused(capsys, "bcast", "--nbytes=-5")
    assert "2000000 ranks are too many" in refused(capsys, "bcast", "-n", "2000000")
    assert "steps of all ranks are too many to list" in refused(capsys, "bcast", "--nblocks", "200000", "--json")
    assert "there is no host of 0 ranks" in refused(capsys, "bcast", "--ranks-per-host", "0")
    lanes = ["bcast", "-n", "5", "--ranks-per-host", "2", "--algorithm", "full_lane"]
    assert "it needs as many ranks on each host, not 2, 2, 1; possible here: circulant" in refused(capsys, *lanes)
    assert "has no block schedules" in refused(capsys, "allreduce", "--tables")
    for argv in (["brodcast"], ["bcast", "--counts", "a,b"]):
        with pytest.raises(SystemExit):
            cli.main(["explain", *argv])

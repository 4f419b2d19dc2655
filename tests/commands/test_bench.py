"""The benchmark: sizes and cases, what is refused, the text, the files, and runs inside launched jobs."""

from __future__ import annotations

import doctest
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure

from ringcast._util import sizes
from ringcast.algorithms import ALGORITHMS
from ringcast.commands.bench import distributions, limits, plan, plot, report, run
from ringcast.commands.bench.bed import BedError
from ringcast.commands.bench.cases import COLLECTIVES, IRREGULAR, OURS, PARTED, REGULAR, Case, Measurement
from ringcast.commands.bench.constants import calibrate
from ringcast.commands.bench.figures import MAIN, TUNE, Row, distrust, judge, write_json
from ringcast.commands.bench.inprocess import Here, aligned
from ringcast.commands.bench.options import understand
from ringcast.commands.bench.run import main
from ringcast.commands.bench.systems.ringcast_system import RingcastSystem
from ringcast.commands.bench.systems.workload import COMBINING
from ringcast.commands.bench.tune import tune
from ringcast.commands.bench.workers import start_workers
from ringcast.config.worker import from_environment
from ringcast.events import Event, RoundEnd, RoundStart
from support.beds import make_bed, outputs
from support.cases import each
from support.jobs import Jobs
from support.patience import patience
from support.places import ROOT

RATE = 100_000_000
BENCH = "import sys; from ringcast.commands.bench.run import main; sys.exit(main(sys.argv[1:]))"
CONSTANTS = ROOT / "configs/sockets-100mbit.toml"
CHOOSABLE = [name for name in COLLECTIVES if name in ALGORITHMS and name != "barrier"]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def wish(*collectives: str, **wanted: Any) -> plan.Wish:
    given: dict[str, Any] = {"sizes": (1000,), "distributions": ("mod3",)}
    return plan.Wish(collectives, **{**given, **wanted})


def measured(case: Case, *seconds: float, system: str = OURS, **more: Any) -> Measurement:
    return Measurement(case, system, seconds, **more)


@pytest.mark.parametrize("module", [distributions, limits, plan, report, sizes], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# Sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1k:10m", (1000, 10_000, 100_000, 1_000_000, 10_000_000)),
        ("500", (500,)),
        ("2M:2m", (2_000_000,)),
        ("3:1k", (3, 30, 300, 1000)),
        ("1G:1g", (1_000_000_000,)),
    ],
)
def test_a_range_of_sizes_grows_tenfold_and_has_both_ends(text: str, expected: tuple[int, ...]) -> None:
    assert sizes.parse_range(text) == expected


@pytest.mark.parametrize("text", ["", ":", "0", "1k:", "-1", "1.5k", "1kb", "²", "10:1", "1:2:3"])
def test_what_is_no_range_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a size|larger"):
        sizes.parse_range(text)


@pytest.mark.parametrize("nbytes", [1, 999, 1000, 1001, 12_000, 10**6, 10**6 + 1, 5 * 10**9])
def test_a_label_says_the_size_exactly(nbytes: int) -> None:
    assert sizes.parse(sizes.label(nbytes)) == nbytes


# Cases


@each("p", [1, 2, 3, 8, 33])
@each("m", [1, 7, 8, 1000, 10_000_000])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_cases_hold_whole_items_and_parts_that_add_up(collective: str, m: int, p: int) -> None:
    if p == 1 and collective in ("latency", "bandwidth"):
        with pytest.raises(ValueError, match="two ranks"):
            plan.cases(wish(collective, sizes=(m,)), p, None)
        return
    (case,) = plan.cases(wish(collective, sizes=(m,)), p, RATE)
    unit = 8 if collective in COMBINING else p if collective in REGULAR else 1
    assert case.nbytes == (0 if collective == "barrier" else max(m // unit * unit, unit))
    assert bool(case.parts) == (collective in PARTED)
    if case.parts:
        assert len(case.parts) == p
        assert sum(case.parts) == case.nbytes
    if collective in COMBINING:
        assert not [part for part in case.parts if part % 8]
    if collective in REGULAR:
        assert len(set(case.parts)) == 1
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_what_is_asked_for_twice_is_done_once() -> None:
    assert len(plan.cases(wish("bcast", "bcast"), 4, None)) == 1


def test_only_irregular_collectives_are_done_with_every_distribution() -> None:
    made = plan.cases(wish(*COLLECTIVES, distributions=("spike", "mod3")), 4, None)
    for name in COLLECTIVES:
        done = [case.distribution for case in made if case.collective == name]
        assert done == (["spike", "mod3"] if name in IRREGULAR else [""])


def test_sizes_that_become_the_same_are_measured_once() -> None:
    made = plan.cases(wish("reduce", "gather", "barrier", sizes=(1, 10, 100)), 12, None)
    assert [case.nbytes for case in made] == [8, 96, 12, 96, 0]


@pytest.mark.parametrize("rate", [None, 20_000_000, RATE])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_repetitions_are_fewer_for_more_data_and_at_least_five(collective: str, rate: int | None) -> None:
    made = plan.cases(wish(collective, sizes=(1, 10**4, 10**6, 10**7, 10**9)), 8, rate)
    repeats = [case.repeat for case in made]
    assert repeats == sorted(repeats, reverse=True)
    assert all(5 <= case.repeat <= 50 and case.warmup >= 1 for case in made)


def test_what_the_user_says_about_repetitions_holds() -> None:
    (case,) = plan.cases(wish("bcast", repeat=7, warmup=0), 8, RATE)
    assert (case.warmup, case.repeat) == (0, 7)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (wish("bcast", algorithm="ring"), "bcast by 'ring': there is no such algorithm; known are circulant"),
        (wish("bcast", "scatter", nblocks=4), "scatter"),
        (wish("allreduce", algorithm="census"), "exact"),  # sums of floats are not
        (wish("gather", nblocks=2), "no algorithm fits"),
        (wish("barrier", algorithm="census"), "takes neither --algorithm nor --nblocks"),
        (wish("latency", nblocks=2), "takes neither --algorithm nor --nblocks"),
    ],
)
def test_what_no_algorithm_can_do_is_refused_before_anything_is_started(wanted: plan.Wish, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan.cases(wanted, 8, RATE)


# The choice by hand


@pytest.mark.parametrize("collective", CHOOSABLE)
def test_by_hand_every_legal_algorithm_is_tried(collective: str) -> None:
    (case,) = plan.cases(wish(collective), 8, None)
    names = {one.algorithm for one in plan.by_hand(case)}
    assert names <= set(ALGORITHMS[collective])
    entries = ALGORITHMS[collective].items()
    assert names == {name for name, entry in entries if not (entry.exact and collective in COMBINING)}  # sums of floats


@pytest.mark.parametrize("collective", sorted(set(COLLECTIVES) - set(CHOOSABLE)))
def test_where_there_is_no_choice_nothing_is_tried(collective: str) -> None:
    (case,) = plan.cases(wish(collective), 8, None)
    assert plan.by_hand(case) == []


def test_block_counts_are_tried_around_those_of_each_algorithm_that_is_not_hopeless() -> None:
    (case,) = plan.cases(wish("allgatherv", sizes=(10**6,)), 8, RATE)
    seconds = {"circulant_blocks": (1.0, 5.0), "pipelined_ring": (1.9,), "ring": (2.1,), "circulant": (1.5,)}
    tried = [measured(one, *seconds.get(one.algorithm or "", (9.0,)), nblocks=8) for one in plan.by_hand(case)]
    found = {(one.algorithm, one.nblocks) for one in plan.around(case, tried)}
    grid = {2, 4, 8, 16, 32}
    assert found == {("circulant", None)} | {(name, n) for name in ("circulant_blocks", "pipelined_ring") for n in grid}


# Figures


BIG = Case("bcast", 8, 10_000_000)
PEER_TIMES = {"openmpi": 5.86, "mpich": 0.0084, "gloo": 4.98}


def test_a_row_has_median_and_minimum_and_times_the_limit() -> None:
    row = judge(measured(BIG, 0.9, 0.85, 2.0), RATE)
    assert (row.median, row.least, row.repetitions) == (0.9, 0.85, 3)
    assert row.times_limit == pytest.approx(0.9 / 0.83646, rel=1e-4)


def test_latency_is_half_of_there_and_back_and_bandwidth_of_one_message() -> None:
    assert judge(measured(Case("latency", 2, 8), 4e-4), None).median == pytest.approx(2e-4)
    row = judge(measured(Case("bandwidth", 2, 1_000_000), 4e-3), None)
    assert row.median == pytest.approx(1e-3)  # four messages of a megabyte
    assert report.megabytes_per_second(row) == "1000.0"


def test_who_beats_the_wire_loses_all_figures() -> None:
    small = replace(BIG, nbytes=1000)
    rows = [
        judge(measured(case, seconds, system=system), RATE)
        for case in (small, BIG)
        for system, seconds in {**PEER_TIMES, OURS: 0.84}.items()
    ]
    judged = distrust(rows)
    assert all((row.median is None) == (row.system == "mpich") for row in judged)
    assert all("around the wire" in row.problem for row in judged if row.system == "mpich")
    assert rows[1].median is not None  # 1000 bytes alone show nothing
    assert [line for line in report.ending(rows) if "mpich" in line and "do not believe its rows" in line]


def test_json_has_what_the_issue_names(tmp_path: Path) -> None:
    spike = Case("allgatherv", 2, 4, "spike", (2, 2))
    rows = [
        judge(measured(BIG, 0.9, algorithm="circulant", nblocks=64, rounds=66, version="1"), RATE),
        judge(measured(spike, 1e-4), None),
        judge(measured(BIG, system="gloo", problem="not installed"), RATE),
        judge(measured(replace(BIG, nblocks=2), 1.0), RATE, TUNE),
    ]
    write_json(tmp_path / "out.json", rows)
    first, second, third, fourth = json.loads((tmp_path / "out.json").read_text())
    expected = {
        "system": OURS, "collective": "bcast", "p": 8, "bytes": 10_000_000, "distribution": None,
        "algorithm": "circulant", "nblocks": 64, "median_s": 0.9, "min_s": 0.9, "choice": "automatic",
        "table": MAIN, "rounds": 66, "repetitions": 1, "version": "1", "problem": None,
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert first["limit_ratio"] == pytest.approx(0.9 / first["limit_s"])
    assert (second["distribution"], second["limit_s"], second["limit_ratio"]) == ("spike", None, None)
    assert (third["median_s"], third["problem"]) == (None, "not installed")
    assert (fourth["choice"], fourth["table"]) == ("by hand", "tune")
    assert list(tmp_path.iterdir()) == [tmp_path / "out.json"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_json(path, [judge(measured(BIG, 1.0), None)])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# The text


def lines_of(rows: Sequence[Row]) -> list[str]:
    return [line for _, lines in report.table(iter(rows)) for line in lines]


def test_text_of_a_comparison() -> None:
    small = replace(BIG, nbytes=1000)
    rows = [
        judge(measured(small, 4.567e-4, algorithm="circulant", nblocks=1, rounds=3), RATE),
        judge(measured(small, 1.2e-3, system="openmpi"), RATE),
        judge(measured(BIG, 0.84, 0.83, 0.87, algorithm="circulant", nblocks=128, rounds=130), RATE),
        judge(measured(BIG, system="gloo", problem="not installed: pip says no"), RATE),
        judge(measured(BIG, 0.01, system="mpich"), RATE),
    ]
    blank, title, names, *body = lines_of(rows)
    assert (blank, title) == ("", "# bcast")
    assert names.split() == [
        "#", "bytes", "system", "median_us", "min_us", "x_limit", "rounds", "algorithm", "n", "reps",
    ]  # fmt: skip
    assert [line.split() for line in body[:3]] == [
        ["1k", "ringcast", "456.7", "456.7", "5.460", "3", "circulant", "1", "1"],
        ["1k", "openmpi", "1200", "1200", "14.346", "-", "-", "-", "1"],
        ["10m", "ringcast", "840000", "830000", "1.004", "130", "circulant", "128", "3"],
    ]
    assert body[3].split(maxsplit=2) == ["10m", "gloo", "not installed: pip says no"]
    assert "went around the wire" in body[4]


def test_a_comparison_has_a_line_for_each_case_and_the_ratio_to_the_best_peer() -> None:
    small = replace(BIG, nbytes=1000)
    rows = [
        judge(measured(small, 2e-4), None),
        judge(measured(small, 4e-4, system="openmpi"), None),
        judge(measured(small, 1e-4, system="mpich"), None),
        judge(measured(BIG, 0.5), None),
        judge(measured(BIG, 1.0, system="openmpi"), None),
        judge(measured(BIG, system="mpich", problem="not supported"), None),
        judge(measured(replace(BIG, collective="barrier", nbytes=0), 3e-4), None),
        judge(measured(replace(BIG, collective="barrier", nbytes=0), system="openmpi", problem="lost"), None),
    ]
    blank, title, names, *body = report.comparison(rows)
    assert (blank, title[:14]) == ("", "# side by side")
    assert names.split() == ["#", "bytes", "collective", OURS, "openmpi", "mpich", "ratio"]
    assert [line.split() for line in body] == [
        ["1k", "bcast", "0.2000", "0.4000", "0.1000", "2.00"],
        ["10m", "bcast", "500.00", "1000.00", "-", "0.50"],
        ["0", "barrier", "0.3000", "-", "-", "-"],
    ]
    assert {len(line) for line in body} == {len(names)}


def test_a_comparison_on_links_has_their_limit_and_without_peers_there_is_none() -> None:
    rows = [judge(measured(BIG, 0.9, system=system), RATE) for system in (OURS, "gloo")]
    _, _, names, line = report.comparison(rows)
    assert names.split()[3] == "limit"
    assert line.split() == ["10m", "bcast", "836.46", "900.00", "900.00", "1.00"]
    assert report.comparison(rows[:1]) == []


def test_the_end_says_what_started_whom() -> None:
    rows = [
        judge(measured(BIG, 0.9, command="ringcast-launch -n 8"), None),
        judge(measured(BIG, 0.9, system="mpich", version="MPICH 5", command="mpiexec -n 8 python mpi.py"), None),
    ]
    assert report.ending(rows) == [
        "# mpich: MPICH 5",
        "# ringcast was started by: ringcast-launch -n 8",
        "# mpich was started by: mpiexec -n 8 python mpi.py",
    ]


def test_the_longest_name_of_an_algorithm_has_a_space_before_it() -> None:
    longest = max((name for named in ALGORITHMS.values() for name in named), key=len)
    row = judge(measured(BIG, 0.84, algorithm=longest, nblocks=128, rounds=130), RATE)
    assert f" {longest} " in lines_of([row])[-1]
    assert report.choices(row, [row]).split()[2] == longest


def test_columns_stand_below_their_titles() -> None:
    row = judge(measured(BIG, 0.84, algorithm="circulant_blocks", nblocks=128, rounds=130), RATE)
    _, _, names, body = lines_of([row])
    assert len(names) == len(body)
    assert names.index("system") == body.index("ringcast")


def test_every_collective_and_distribution_has_a_table_of_its_own() -> None:
    made = plan.cases(wish(*COLLECTIVES, sizes=(8, 80), distributions=("spike", "mod3")), 4, None)
    lines = lines_of([judge(measured(case, 1e-3), None) for case in made])
    assert lines.count("") == len(COLLECTIVES) + len(IRREGULAR)
    assert "# allgatherv, spike parts" in lines
    assert "# alltoallv, mod3 parts" in lines
    assert [line for line in lines if "MB/s" in line]


def test_heading_says_what_was_done_where_and_when() -> None:
    lines = report.heading("0.1", 8, "on hosts", "ringcast bench bcast", datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert all(line.startswith("# ") for line in lines)
    text = "\n".join(lines)
    assert "ringcast bench 0.1, 2030-01-0" in text
    assert "# 8 ranks on hosts" in text
    assert "# ringcast bench bcast" in text
    assert "up to 15 kB of a bcast travel in it" in text


# Plots


def test_a_panel_has_a_line_for_each_system_and_one_for_the_limit() -> None:
    cases = [replace(BIG, nbytes=m) for m in (10**4, 10**5, 10**6)]
    rows = [
        judge(measured(case, seconds, system=system), RATE)
        for case in cases
        for system, seconds in {**PEER_TIMES, "mpich": 1.5, OURS: 0.84}.items()
    ]
    axes = Figure().add_subplot()
    plot._draw_panel(axes, "bcast", rows, [*PEER_TIMES, OURS])
    labels = [line.get_label() for line in axes.get_lines()]
    assert labels == [*PEER_TIMES, OURS, "limit of the wire"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert all(len(line.get_xdata()) == 3 for line in axes.get_lines())


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "png" else pytest.mark.live) for kind in plot.FORMATS]
)
def test_a_plot_is_written_whole(tmp_path: Path, kind: str) -> None:
    made = plan.cases(wish("bcast", "barrier", "allgatherv", sizes=(10, 1000)), 4, RATE)
    plot.draw(tmp_path / f"out.{kind}", [judge(measured(case, 1e-3), RATE) for case in made], "4 ranks")
    assert [path.name for path in tmp_path.iterdir()] == [f"out.{kind}"]
    assert (tmp_path / f"out.{kind}").stat().st_size > 1000


def test_a_plot_of_nothing_is_empty_but_there(tmp_path: Path) -> None:
    plot.draw(tmp_path / "out.svg", [judge(measured(BIG, problem="no"), RATE)], "nothing")
    assert (tmp_path / "out.svg").exists()


def test_without_matplotlib_the_reason_and_the_remedy_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'matplotlib>=3.8'" in plot.reason_not(Path("out.png"))


# Options


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RINGCAST_")]:
        monkeypatch.delenv(name)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    try:
        code = main(argv)
    except SystemExit as exit:
        code = exit.code
    out, err = capsys.readouterr()
    assert code == 2
    assert not out
    return err


BED = ("--hosts-bed", "3x100mbit")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("bcast", "-m", "1k"), "ringcast-launch -n 4 ringcast bench bcast; or on emulated hosts: --hosts-bed 8x"),
        ((), "or here: --one-host 4"),
        (("bcst", *BED), "there is no collective 'bcst'; known are bcast, reduce"),
        (("-m", "1x", *BED), "'1x' is not a size"),
        (("-m", "10:1", *BED), "larger than the last"),
        (("-i", "0", *BED), "'0' is not a whole number, 1 or more"),
        (("-x", "-1", *BED), "-1"),
        (("--nblocks", "x", *BED), "'x' is not a whole number"),
        (("--distribution", "zipf", *BED), "there is no distribution 'zipf'"),
        (("--peers", "gloo"), "--peers needs --hosts-bed, such as --hosts-bed 8x100mbit, or --one-host"),
        (("--one-host", "0"), "'0' is not a whole number, 1 or more"),
        (("--one-host", "2", *BED), "--hosts-bed and --one-host are two places"),
        (("--one-host", "1", "latency"), "latency needs two ranks"),
        (("--one-host", "2", "--config", str(CONSTANTS)), "with --one-host set RINGCAST_CONFIG"),
        (("--peers", "gloo,numpy", *BED), "--peers numpy: memory has no links"),
        (("--peers", "gloo,nccl", *BED), "there is no peer 'nccl'; known are openmpi"),
        (("--hosts-bed", "eight"), "eight"),
        (("bcast", "--hosts-bed", "1x100mbit"), "one host cannot communicate; take 2 or more"),
        (("--config", "/nowhere.toml", *BED), "/nowhere.toml: the configuration file cannot be read"),
        (("bcast", "--algorithm", "rng", *BED), "known are circulant"),
        (("bcast", "--distribution", "all", *BED), "--distribution is for allgatherv and alltoallv, which are not"),
        (("--tune", "--nblocks", "2", *BED), "--tune tries algorithms and block counts"),
        (("--plot", "out.gif", *BED), "must end with one of .png"),
        (("--json", "/nowhere/at/all.json", *BED), "--json /nowhere/at/all.json: no file can be written there"),
        (("bcast", "-m", "1k", "allredcue", *BED), "there is no collective 'allredcue'"),
        (("--frobnicate", *BED), "unrecognized arguments"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], argv: Sequence[str], message: str
) -> None:
    assert message in refusal(capsys, *argv)


@pytest.mark.usefixtures("alone")
def test_collectives_may_stand_on_both_sides_of_options() -> None:
    options, cases = understand(("bcast", "-m", "1k", "allreduce", *BED, "barrier"), from_environment())
    assert [case.collective for case in cases] == ["bcast", "allreduce", "barrier"]
    assert understand(BED, from_environment())[0].collectives == []
    assert options.bed == (3, RATE)


@pytest.mark.usefixtures("alone")
def test_the_constants_of_the_environment_hold_unless_others_are_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert understand(BED, from_environment())[0].config is None
    monkeypatch.setenv("RINGCAST_CONFIG", str(CONSTANTS))
    assert understand(BED, from_environment())[0].config == CONSTANTS
    monkeypatch.setenv("RINGCAST_CONFIG", "/nowhere.toml")
    assert understand((*BED, "--config", str(CONSTANTS)), from_environment())[0].config == CONSTANTS
    assert "/nowhere.toml: the configuration file cannot be read" in refusal(capsys, *BED)


@pytest.mark.usefixtures("alone")
def test_an_unusable_environment_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGCAST_SIZE", "many")
    assert refusal(capsys, "bcast") == "ringcast bench: RINGCAST_SIZE='many': must be a whole number\n"


def test_sigterm_ends_as_an_exception_does_and_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, run._ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_that_cannot_be_written_is_one_sentence_and_the_others_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Place:
        rate = RATE

        def measure(self, systems: Sequence[str], cases: Sequence[Case]) -> Iterator[Measurement]:
            return (measured(case, 1.0) for case in cases)

        def trace(self, cases: Sequence[Case]) -> Iterator[list[list[Event]]]:
            return ([[]] for _ in cases)

    gone = tmp_path / "gone"
    wanted = Namespace(peers=(), tune=False, json=gone / "1.json", plot=tmp_path / "2.svg", trace=gone / "3.json")
    assert run._bench(wanted, [BIG], Place(), "here", speaks=True) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"ringcast bench: {gone}/{n}.json was not written: No such file or directory" for n in (1, 3)]
    assert [path.name for path in tmp_path.iterdir()] == ["2.svg"]


@pytest.mark.usefixtures("alone")
def test_on_one_host_links_have_no_rate() -> None:
    options, cases = understand(("--one-host", "4", "--peers", "gloo,numpy", "bcast"), from_environment())
    assert (options.one_host, options.bed, options.peers) == (4, None, ("gloo", "numpy"))
    assert {case.size for case in cases} == {4}


def test_in_a_job_there_is_no_bed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_CONTROL", "ipc:///nowhere")
    assert "leave out ringcast-launch" in refusal(capsys, *BED)
    assert "leave out ringcast-launch, or --one-host" in refusal(capsys, "--one-host", "2")


def test_only_rank_0_complains(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CONTROL": "ipc:///nowhere", "RANK": "1", "SIZE": "2"}.items():
        monkeypatch.setenv(f"RINGCAST_{name}", value)
    assert refusal(capsys, "bcst") == refusal(capsys, "--peers", "gloo") == ""


@pytest.mark.usefixtures("alone")
def test_without_permission_one_sentence_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(count: int, rate: int | None) -> None:
        raise BedError("emulated hosts need root")

    monkeypatch.setattr(run, "Bed", refuse)
    assert main(["bcast", *BED]) == 1
    assert capsys.readouterr() == ("", "ringcast bench: emulated hosts need root\n")


# Runs inside a job


class Fake:
    """A system whose results are as its rank says: wrong on rank 1, or nothing at all."""

    name, version = OURS, "0"

    def __init__(self, barrier: Callable[[], None], rank: int, size: int, verdict: str, able: bool) -> None:
        self.barrier, self.rank, self.size = barrier, rank, size
        self.calls = 0
        self._verdict, self._able = verdict if rank == 1 else "", able

    def prepare(self, case: Mapping[str, Any]) -> Callable[[], object] | None:
        return self._call if self._able else None

    def _call(self) -> None:
        self.calls += 1

    def check(self) -> str:
        return self._verdict

    def chosen(self) -> dict[str, Any]:
        return {"algorithm": "fake", "nblocks": 3, "rounds": 5}

    def trace(self, *, barrier: bool = False) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("able", "verdict", "problem"),
    [(True, "", ""), (True, "item 3 is 4", "wrong result: item 3 is 4"), (False, "", "not supported")],
)
def test_all_ranks_learn_the_same(jobs: Jobs, able: bool, verdict: str, problem: str) -> None:
    case = Case("bcast", 3, 8, check=True, warmup=2, repeat=4)

    def work(comm: Any) -> tuple[Measurement, int]:
        fake = Fake(comm.barrier, comm.rank, comm.size, verdict, able)
        (found,) = Here(comm, fake).measure([OURS], [case])
        return found, fake.calls

    (first, calls), *others = jobs("threads", 3).ask(work)
    assert all(other == (first, calls) for other in others)
    assert first.problem == problem
    assert (len(first.seconds), calls) == ((0, 0) if problem else (4, 6))
    assert first.algorithm == (None if problem else "fake")


@pytest.mark.parametrize("p", [1, 2, 3])
def test_every_collective_runs_with_right_results(jobs: Jobs, p: int) -> None:
    names = [name for name in COLLECTIVES if p > 1 or name not in ("latency", "bandwidth")]
    wanted = wish(*names, sizes=(1, 5000), distributions=("spike", "mod3"), check=True, warmup=0, repeat=2)
    made = plan.cases(wanted, p, None)

    def work(comm: Any) -> list[Measurement]:
        return list(Here(comm, RingcastSystem(comm)).measure([OURS], made))

    for found in jobs("threads", p).ask(work):
        assert [one.case for one in found] == made
        assert {one.problem for one in found} == {""}
        assert all(len(one.seconds) == 2 and min(one.seconds) > 0 for one in found)
        assert all(one.algorithm for one in found if one.case.collective in ALGORITHMS)


def test_tune_puts_the_automatic_choice_beside_the_best_by_hand(jobs: Jobs) -> None:
    made = plan.cases(wish("barrier", "bcast", "allgatherv", sizes=(64, 20_000), warmup=0, repeat=2), 3, None)

    def work(comm: Any) -> tuple[list[Row], list[str]]:
        lines: list[str] = []
        return tune(Here(comm, RingcastSystem(comm)), made, lines.append), lines

    (rows, lines), *others = jobs("threads", 3).ask(work)
    assert all(other == (rows, lines) for other in others)  # so all ranks have done the same
    assert [row.case for row in rows if not row.by_hand] == [case for case in made if case.collective != "barrier"]
    assert all(row.table == TUNE for row in rows)
    table = [line.split() for line in lines if line and not line.startswith("#")]
    assert [fields[0] for fields in table] == ["64", "20k", "64", "20k"]
    for fields in table:
        assert float(fields[-1]) == pytest.approx(float(fields[1]) / float(fields[4]), rel=0.02)


def test_a_trace_has_the_rounds_of_all_ranks(jobs: Jobs) -> None:
    made = plan.cases(wish("bcast", "allgatherv"), 3, None)

    def work(comm: Any) -> list[list[list[Event]]]:
        return list(Here(comm, RingcastSystem(comm)).trace(made))

    first, *others = jobs("threads", 3).ask(work)
    assert others == [[[], []]] * 2
    for by_rank in first:
        assert len(by_rank) == 3
        assert [{event.rank for event in events} for events in by_rank] == [{0}, {1}, {2}]


def test_on_several_hosts_a_barrier_sets_the_clock_and_is_left_out(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.commands.bench.inprocess.socket.gethostname", lambda: threading.current_thread().name)
    made = plan.cases(wish("allgatherv", sizes=(1000, 2000)), 3, None)

    def work(comm: Any) -> list[list[list[Event]]]:
        return list(Here(comm, RingcastSystem(comm)).trace(made))

    (before, later), *_ = jobs("threads", 3).ask(work)
    assert {event.operation for by_rank in (before, later) for events in by_rank for event in events} == {"allgatherv"}
    # On rank 0, whose clock it is: the others leave a barrier some latencies later, however long these are.
    assert before[0][-1].time < later[0][0].time


def test_clocks_that_differ_are_brought_to_that_of_rank_0() -> None:
    def rank(number: int, clock: float) -> list[Event]:
        return [
            RoundStart(number, "barrier", 1, 0, clock, 1 - number, 0, 1 - number),
            RoundEnd(number, "barrier", 1, 0, clock + 1, 0, 0.0),
            RoundStart(number, "bcast", 2, 0, clock + 2, 1, 8, None, clock + 1.5),
            RoundEnd(number, "bcast", 2, 0, clock + 3, 0, 0.0, clock + 2.5),
        ]

    first, second = aligned([rank(0, 64.0), rank(1, 4096.0)])
    assert first == rank(0, 64.0)[2:]
    assert second == rank(1, 64.0)[2:]


def launched(size: int, *argv: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), "--output", "none", "python", "-c", BENCH]
    return subprocess.run(
        [*command, *argv], capture_output=True, text=True, cwd=folder, timeout=patience(100), env={**os.environ, **env}
    )


@pytest.mark.live
@pytest.mark.parametrize("size", [2, 3])
def test_all_collectives_in_a_launched_job(tmp_path: Path, size: int) -> None:
    files = ("--json", "out.json", "--plot", "out.png", "--trace", "trace.json")
    done = launched(size, *COLLECTIVES, "-c", "-m", "100:10k", "-i", "2", "-x", "0", *files, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert {row["collective"] for row in rows} == set(COLLECTIVES)
    assert all(row["median_s"] > 0 and row["problem"] is None and row["p"] == size for row in rows)
    assert done.stdout.count("# bcast\n") == 1  # one rank speaks
    assert done.stdout.count("ringcast bench") == 2
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "out.png", "trace.json"}


def test_wrong_options_in_a_launched_job_are_told_once(tmp_path: Path) -> None:
    done = launched(3, "bcst", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("there is no collective 'bcst'") == 1


@pytest.mark.live
def test_in_a_launched_job_files_are_for_rank_0_to_write(tmp_path: Path) -> None:
    done = launched(3, "bcast", "--json", "/nowhere/at/all.json", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("--json /nowhere/at/all.json: no file can be written there") == 1
    assert not done.stdout


def test_unusable_constants_in_a_launched_job_are_no_traceback(tmp_path: Path) -> None:
    done = launched(2, "bcast", folder=tmp_path, RINGCAST_CONFIG="/nowhere.toml")
    assert done.returncode == 2
    assert "/nowhere.toml: the configuration file cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.live
def test_the_heading_says_which_constants_choose(tmp_path: Path) -> None:
    done = launched(2, "barrier", "-i", "1", folder=tmp_path)
    assert "over shm; constants of the network: the transport's defaults" in done.stdout


# Runs on one host


@pytest.mark.live
def test_a_run_on_one_host_beside_a_peer(tmp_path: Path) -> None:
    argv = ["--one-host", "2", "--peers", "numpy", "bandwidth", "-m", "1k", "-c", "-i", "3"]
    files = ["--json", "out.json", "--plot", "out.png"]
    with tempfile.TemporaryDirectory(prefix="rc-") as short:  # sockets lie there
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": short}
        done = subprocess.run(
            [sys.executable, "-c", BENCH, *argv, *files],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=patience(100),
            env=env,
        )
        assert os.listdir(short) == []
    assert done.returncode == 0, done.stdout + done.stderr
    ours, copied = json.loads((tmp_path / "out.json").read_text())
    assert (ours["system"], ours["command"]) == (OURS, "ringcast-launch -n 2")
    assert (copied["system"], copied["command"]) == ("numpy", "python numpy_copy.py")
    assert all(row["median_s"] > 0 and row["problem"] is None for row in (ours, copied))
    assert "# 2 ranks on this host" in done.stdout
    assert "# side by side: " in done.stdout
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


# Runs on emulated hosts


@pytest.mark.live
def test_a_run_on_emulated_hosts(tmp_path: Path) -> None:
    make_bed("1").close()  # or skip
    where = ["--hosts-bed", "3x100mbit", "--config", str(CONSTANTS)]
    argv = [*where, "bcast", "allgatherv", "-m", "300k", "-c", "-i", "3"]
    files = ["--json", "out.json", "--trace", "trace.json"]
    done = subprocess.run(
        [sys.executable, "-c", BENCH, *argv, *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=patience(100),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["collective"] for row in rows] == ["bcast", "allgatherv"]
    for row in rows:
        assert row["limit_s"] == pytest.approx(300_000 / (RATE / 8 * 1448 / 1514))
        assert 0.7 < row["limit_ratio"] == pytest.approx(row["median_s"] / row["limit_s"])
    slices = [one for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if one["ph"] == "X"]
    assert {one["tid"] for one in slices} == {1, 2, 3}


@pytest.mark.live
def test_ranks_on_emulated_hosts_are_as_open_as_the_user_wants() -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['RINGCAST_SECURITY'])"]
    files = {"stdout": subprocess.PIPE, "text": True}
    with make_bed("2") as bed:
        for wanted in ("none", "curve"):
            workers = start_workers(bed, command, {**os.environ, "RINGCAST_SECURITY": wanted}, **files)
            assert outputs(workers) == [f"{wanted}\n"] * 2


@pytest.mark.live
def test_a_run_that_is_terminated_leaves_no_files(tmp_path: Path) -> None:
    make_bed("1").close()  # or skip
    argv = ["--hosts-bed", "2x100mbit", "--config", str(CONSTANTS), "bcast", "-m", "1k:1m", "-i", "1000"]
    command, env = [sys.executable, "-c", BENCH, *argv], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as bench:
        assert bench.stdout is not None
        while not bench.stdout.readline().startswith("1k"):
            assert bench.poll() is None
        bench.terminate()
        assert bench.wait(patience(60)) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.live
def test_settings_for_what_is_measured_do_not_disturb_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setenv("RINGCAST_CONFIG", "/nowhere.toml")
    monkeypatch.setenv("RINGCAST_DEBUG", "info")
    with make_bed("2") as bed, pytest.raises(BedError, match=r"calibrate failed: .*no file can be written there$"):
        calibrate(bed, tmp_path / "gone/network.toml")

"""Calibration: the fit gives back the constants that times were made of, and what is measured is what was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.algorithms import network_file
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.commands import cli
from ringcast.commands.calibrate import command, measure, report
from ringcast.commands.calibrate.fit import Sample, fit
from ringcast.commands.calibrate.measure import KINDS, SIZES, CalibrationCase
from ringcast.communicator import Communicator
from ringcast.schedules.placement import Hosts
from support.jobs import Job
from support.patience import patience

CLUSTER = Network(alpha=3e-4, beta=3e-8, gamma=2e-9, frame=4e-5, grant=1e-4, beta_long=5e-8, link_beta=7e-8)
QUICK = """
import sys
from ringcast.commands.calibrate import command, measure
measure.SIZES, measure.EACH = (4096, 1 << 20), 0.01  # so far apart that times grow on a busy machine too
sys.exit(command.main(sys.argv[1:]))
"""


def synthetic(
    network: Network, size: int = 8, noise: Callable[[], float] = lambda: 1.0, hosts: Hosts = ()
) -> list[Sample]:
    """Return the samples that a measurement of `network` would give, each time multiplied by what `noise` returns."""
    cases = [replace(kind, nbytes=nbytes) for kind, nbytes in product(measure.kinds_of(size, hosts), SIZES)]
    blank = [Sample(c.collective, c.algorithm, c.params(size, hosts), c.nbytes, 1.0) for c in cases if c.fits]
    return [replace(sample, seconds=sample.predicted(network) * noise()) for sample in blank]


def constants(network: Network) -> list[float]:
    return [network.alpha, network.beta, network.gamma, network.frame, network.grant, network.beta_long]


@pytest.mark.parametrize("network", [CLUSTER, *NETWORKS.values()], ids=["cluster", *NETWORKS])
@pytest.mark.parametrize("size", [2, 3, 8, 36])
def test_exact_times_give_exact_constants(network: Network, size: int) -> None:
    samples = synthetic(network, size)
    found = fit(samples)
    assert constants(found) == pytest.approx(constants(network), rel=1e-6)
    assert max(abs(sample.error(found)) for sample in samples) < 1e-6
    assert not network.link_beta or found.link_beta == pytest.approx(network.link_beta)


def test_times_of_more_ranks_than_processors_are_fitted_as_such() -> None:
    network = replace(NETWORKS["shm"], ranks_per_cpu=4.0)
    found = fit(synthetic(network), ranks_per_cpu=4.0)
    assert found.ranks_per_cpu == 4.0
    assert constants(found) == pytest.approx(constants(network), rel=1e-6)


@pytest.mark.parametrize("local", [1e-10, 1e-9, 2e-8])
def test_what_was_measured_within_hosts_is_kept(local: float) -> None:
    hosts = (0, 0, 1, 1, 2, 2, 3, 3)
    network, random = replace(CLUSTER, local=local, link_beta=0.0), Random(7)
    found = fit(synthetic(network, hosts=hosts), local)
    assert found.local == pytest.approx(local)
    assert constants(found) == pytest.approx(constants(network), rel=1e-6)
    noisy = fit(synthetic(network, 8, lambda: random.uniform(0.8, 1.25), hosts), local)
    assert noisy.local == pytest.approx(local)
    assert noisy.beta == pytest.approx(network.beta, rel=0.3)


@given(
    alpha=st.floats(1e-5, 1e-2),
    beta=st.floats(1e-6, 1e-3),
    gamma=st.floats(0.1, 2),
    frame=st.floats(0.05, 2),
    grant=st.floats(0.05, 2),
    stream=st.floats(0.05, 2),
    wire=st.floats(0, 3),
)
@settings(max_examples=25)
def test_what_any_constants_predict_is_found(
    alpha: float, beta: float, gamma: float, frame: float, grant: float, stream: float, wire: float
) -> None:
    beta *= alpha  # a round takes as long as 1 kB to 1 MB
    network = Network(alpha, beta, gamma * beta, frame * alpha, grant * alpha, stream * beta, wire * beta)
    samples = synthetic(network)
    found = fit(samples)
    errors = [abs(sample.error(found)) for sample in samples]
    # The wire is not seen where rounds take longer; it is then what the fastest call took, which may be more.
    assert max(errors) < 0.2
    assert median(errors) < 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_noise_moves_the_constants_little(seed: int) -> None:
    noise = np.random.default_rng(seed)
    noisy = synthetic(CLUSTER, noise=lambda: 1 + abs(noise.normal(0, 0.05)))  # others only add to the times
    found = fit(noisy)
    assert found.alpha == pytest.approx(CLUSTER.alpha, rel=0.15)
    assert found.link_beta == pytest.approx(CLUSTER.link_beta, rel=0.05)
    assert found.frame == pytest.approx(CLUSTER.frame, rel=0.25)
    # gamma is hardly seen where bytes are so slow; what they predict is what matters
    for sample in synthetic(CLUSTER):
        assert abs(sample.error(found)) < 0.1
    assert report.accuracy(noisy, found).startswith(f"of {len(noisy)} times half are predicted within ")


@pytest.mark.parametrize("seed", range(5))
def test_a_few_disturbed_times_do_not_matter(seed: int) -> None:
    noise = np.random.default_rng(seed)
    samples = synthetic(CLUSTER, noise=lambda: noise.choice([1.0] * 9 + [4.0]))
    found = fit(samples)
    assert (found.alpha, found.beta) == pytest.approx((CLUSTER.alpha, CLUSTER.beta), rel=0.1)
    for sample in synthetic(CLUSTER):
        assert abs(sample.error(found)) < 0.1


def test_what_cannot_be_told_apart_is_zero() -> None:
    # With a single contributor every round has one frame, so that a frame is a part of alpha; nothing is combined.
    samples = [s for s in synthetic(CLUSTER) if s.collective == "allgatherv" and not all(s.params.contributions)]
    found = fit(samples)
    assert (found.gamma, found.frame) == (0, 0)
    assert found.alpha == pytest.approx(CLUSTER.alpha + CLUSTER.frame)
    assert found.grant == pytest.approx(CLUSTER.grant)
    assert found.beta == pytest.approx(CLUSTER.beta)


def test_no_constant_is_negative() -> None:
    # Reductions that are faster than what they are made of: as if combining took less than no time.
    samples = [s if s.collective == "allgatherv" else replace(s, seconds=s.seconds / 2) for s in synthetic(CLUSTER)]
    assert fit(samples).gamma == 0


@pytest.mark.parametrize(
    "samples",
    [
        [],
        synthetic(CLUSTER)[:1],
        synthetic(CLUSTER)[:1] * 10,
        synthetic(CLUSTER, size=1),  # no rounds: nothing is sent
    ],
    ids=["none", "one", "the same", "one rank"],
)
def test_times_that_show_nothing_are_an_error(samples: list[Sample]) -> None:
    samples = [replace(s, seconds=s.seconds or 1e-6) for s in samples]
    with pytest.raises(ValueError, match="do not grow with the number of rounds and bytes, or there are too few"):
        fit(samples)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_an_error(seconds: float) -> None:
    with pytest.raises(ValueError, match="not a positive number of seconds"):
        fit([*synthetic(CLUSTER), replace(synthetic(CLUSTER)[0], seconds=seconds)])


@pytest.mark.parametrize(("times", "best"), [((1.0, 0.5), measure.LOOKAHEAD), ((1.0, 0.95), 0), ((1.0, 1.5), 0)])
def test_a_lookahead_is_taken_if_it_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, times: tuple[float, float], best: int
) -> None:
    job = Job("threads", 2)
    monkeypatch.setattr(measure, "_timed", lambda comm, _: times[bool(comm._group.endpoint.protocol.lookahead)])
    try:
        assert job.run(measure.best_lookahead) == [best] * 2
        assert job.run(lambda comm: comm._group.endpoint.protocol.lookahead) == [0, 0]
    finally:
        job.close()


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job("threads", 3)
    yield job
    job.close()


def test_all_ranks_measure_the_same(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SIZES", (4096, 16384))
    monkeypatch.setattr(measure, "EACH", 0.0)
    results = job.ask(lambda comm: list(measure.measure(comm, lambda case: None)))
    assert results[0] == results[1] == results[2]
    cases = [replace(kind, nbytes=nbytes) for nbytes, kind in product((4096, 16384), KINDS)]
    assert [(s.collective, s.algorithm, s.nbytes, s.params) for s in results[0]] == [
        (c.collective, c.algorithm, c.nbytes, c.params(3)) for c in cases if c.fits
    ]


@pytest.mark.parametrize(("hosts", "slowest"), [((0, 0, 1), 1), ((0, 1, 1), 2), ((0, 1, 0), 2)])
def test_what_a_byte_takes_within_hosts_is_that_of_the_slowest(
    job: Job, monkeypatch: pytest.MonkeyPatch, hosts: Hosts, slowest: int
) -> None:
    def timed(comm: Communicator, call: partial[object]) -> float:
        call()
        return 0.5 + (1 + comm.rank) * 1e-9 * len(call.args[0])  # a round, and the bytes that this rank sends

    def work(comm: Communicator) -> float:
        comm._group.hosts = hosts
        return measure.local_rate(comm)

    monkeypatch.setattr(measure, "_timed", timed)
    assert job.ask(work) == [pytest.approx((1 + slowest) * 1e-9)] * 3
    assert job.ask(measure.local_rate) == [0.0] * 3  # where none share a host
    assert not job.left_over()


def test_what_is_measured_is_what_is_predicted(job: Job) -> None:
    """The parameters given to the model are those with which the library plans the call."""
    for kind in KINDS:
        case = replace(kind, nbytes=65536)
        op = None if case.collective == "allgatherv" else np.float64
        counts = case.params(3).counts
        size = {"nbytes": 65536} if not counts else {"counts": counts}
        asked = {"algorithm": case.algorithm, "nblocks": case.nblocks, "dtype": op or np.uint8, **size}
        chosen = job.ask(lambda comm, c=case, a=asked: comm.explain(c.collective, **a).chosen)[0]
        sample = Sample(case.collective, case.algorithm, case.params(3), 65536, 1.0)
        assert chosen.nblocks == case.nblocks
        assert chosen.seconds == pytest.approx(sample.predicted(NETWORKS["threads"]), rel=1e-3)


def test_slow_links_are_not_given_large_messages(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[CalibrationCase] = []
    beta = 1e-6
    monkeypatch.setattr(measure, "_call", lambda comm, case: case)
    monkeypatch.setattr(measure, "_repetitions", lambda comm, case: [case.nbytes * beta] * 3)
    job.run(lambda comm: list(measure.measure(comm, cases.append)) if comm.rank == 0 else None)
    assert max(case.nbytes for case in cases) * beta <= measure.LONGEST
    assert len(cases) > 30
    cases.clear()
    monkeypatch.setattr(measure, "_repetitions", lambda comm, case: [measure.LONGEST / 5] * 11)
    job.run(lambda comm: list(measure.measure(comm, cases.append)) if comm.rank == 0 else None)
    assert sum(measure.LONGEST / 5 * 11 for _ in cases) <= measure.BUDGET + 11 * measure.LONGEST


def test_repetitions_follow_from_the_slowest_rank(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_timed", lambda comm, call: 0.001 * (1 + comm.rank))
    monkeypatch.setattr(measure, "EACH", 0.03)
    assert job.ask(lambda comm: measure._repetitions(comm, lambda: None)) == [[0.003] * 10] * 3
    monkeypatch.setattr(measure, "EACH", 0.0)
    assert job.ask(lambda comm: measure._repetitions(comm, lambda: None)) == [[0.003] * measure.REPEAT[0]] * 3


def test_the_table_has_a_line_for_each_sample() -> None:
    samples = synthetic(CLUSTER, noise=lambda: 1.25)
    heading, *lines = report.table(samples, CLUSTER).splitlines()
    assert len(lines) == len(samples)
    assert {len(line) for line in lines} == {len(heading)}
    first = "allgatherv      circulant_blocks  rank 0     4096      1      3        "
    assert lines[0].startswith(first)
    assert lines[0].endswith(" -20%")


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    report.plot(synthetic(CLUSTER), CLUSTER, tmp_path / "times.svg", "a cluster")
    assert (tmp_path / "times.svg").read_text().count("<path") > len(synthetic(CLUSTER))


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(QUICK)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "--output", "none", "program.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(100), cwd=folder)


@pytest.mark.live
def test_a_job_is_calibrated_and_the_next_one_uses_it(tmp_path: Path) -> None:
    done = launch(tmp_path, "-o", "network.toml", "--plot", "times.png")
    assert done.returncode == 0, done.stderr
    network = network_file.read(tmp_path / "network.toml", "shm")
    file = (tmp_path / "network.toml").read_text()
    assert done.stdout.endswith(file)
    assert done.stdout.startswith("collective ")
    assert file.startswith("# Measured by ringcast calibrate (ringcast ")
    assert "# shm, 3 ranks on " in file
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    say = "import ringcast; print(ringcast.init()._group.network)"
    use = [sys.executable, "-m", "ringcast_launcher", "-n", "1", "--config", "network.toml", "--output", "none"]
    told = subprocess.run(
        [*use, "python", "-c", say], capture_output=True, text=True, timeout=patience(60), cwd=tmp_path
    )
    assert told.stdout == f"{network}\n"


@pytest.mark.live
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "none/network.toml"], "none/network.toml: no file can be written there"),
        (["-o", "."], ".: no file can be written there"),
        (["--plot", "none/times.png"], "none/times.png: no file can be written there"),
        (["--plot", "times.txt"], "--plot times.txt: expected a file *."),
    ],
)
def test_what_cannot_be_written_is_said_before_measuring(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = launch(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ringcast calibrate:")]
    assert words in line


@pytest.mark.live
@pytest.mark.parametrize(("arguments", "code"), [(["--plots", "times.png"], 2), (["--help"], 0)])
def test_one_rank_speaks_for_all_about_the_arguments(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = launch(tmp_path, *arguments)
    assert done.returncode == code
    assert (done.stdout + done.stderr).count("usage: ringcast calibrate") == 1
    assert done.stderr.count("error: unrecognized arguments: --plots") == (code == 2)


def test_without_matplotlib_there_is_no_plot_but_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = command._parser().parse_args(["--plot", "times.png"])
    assert command._reason_not(options) == "--plot needs matplotlib: pip install 'matplotlib>=3.8'"
    assert command._reason_not(command._parser().parse_args([])) == ""


@pytest.mark.parametrize("control", ["", "ipc:///nowhere/control"])
def test_without_links_it_says_how_to_run_it(
    control: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("RINGCAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RINGCAST_CONTROL", control)
    assert cli.main(["calibrate", "-o", "network.toml"]) == 2
    expected = "ringcast calibrate: there are no links to measure; run it on 2 ranks or more, as in: "
    assert capsys.readouterr().err == f"{expected}ringcast-launch -n 4 ringcast calibrate -o network.toml\n"


def test_the_command_knows_its_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    assert "calibrate  measure the links" in said
    assert "bench      measure collectives" in said
    assert cli.main(["calibration"]) == 2
    with pytest.raises(SystemExit, match="0"):
        cli.main(["calibrate", "--help"])

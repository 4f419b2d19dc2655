"""The configuration file: what is written is read back, what cannot be is refused, and all ranks have the same."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.algorithms import ALGORITHMS, CallFacts, network_file
from ringcast.algorithms.cost import choose
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.errors import ConfigError
from support.patience import patience
from support.places import ROOT

MEASURED = Network(
    alpha=1.5e-4,
    beta=6.6667e-10,
    gamma=2.5e-10,
    frame=5e-6,
    grant=1e-4,
    beta_long=1e-11,
    local=2e-9,
    link_beta=1e-9,
    lookahead=5,
)
GOOD = network_file.text(MEASURED, "tcp")
LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
SAY_ALPHA = "import ringcast; print(ringcast.init()._group.network.alpha)"


def launch(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCH, "--output", "none", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(60),
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **environment},
    )


def test_a_file_has_all_constants_of_a_network() -> None:
    found = {field.name for field in fields(Network)} - {"ranks_per_cpu"}  # which a job knows of its host
    assert set(network_file._KEYS) == found


@given(
    alpha=st.floats(1e-8, 10),
    beta=st.floats(1e-13, 1e-3),
    gamma=st.floats(0, 1e-3),
    frame=st.floats(0, 1),
)
def test_what_is_written_is_read_back_to_five_digits(
    tmp_path_factory: pytest.TempPathFactory, alpha: float, beta: float, gamma: float, frame: float
) -> None:
    file = tmp_path_factory.getbasetemp() / "network.toml"
    network = Network(**asdict(NETWORKS["ipc"]) | {"alpha": alpha, "beta": beta, "gamma": gamma, "frame": frame})
    network_file.write(file, network, "ipc", ["first remark", "second remark"])
    assert asdict(network_file.read(file, "ipc")) == pytest.approx(asdict(network), rel=1e-4)


def test_what_is_written_can_be_read_however_small(tmp_path: Path) -> None:
    network_file.write(tmp_path / "fast.toml", Network(1e-12, 1e-300, 0, 0), "tcp")
    assert network_file.read(tmp_path / "fast.toml", "tcp") == Network(1e-8, 1e-13, 0, 0)


@pytest.mark.parametrize(("alpha", "beta"), [(1e-8, 1e-8), (10, 1e-13), (1e-8, 1e-13), (10, 1e-3)])
@pytest.mark.parametrize("collective", ALGORITHMS)
def test_with_the_least_and_the_most_a_choice_can_be_made(alpha: float, beta: float, collective: str) -> None:
    name, nblocks = choose(collective, CallFacts(size=36, nbytes=10**9, itemsize=8), Network(alpha, beta, 0, 0))
    assert name in ALGORITHMS[collective]
    assert nblocks < 10**5


def test_the_example_can_be_read() -> None:
    network = network_file.read(ROOT / "configs/sockets-100mbit.toml", "sockets")
    payload = 100e6 / 8 * 1448 / 1514  # bytes per second: what Ethernet and TCP leave of 100 Mbit/s
    # Token buckets let what follows a pause pass faster than the rate, but not all of it.
    assert network.beta < 1 / payload
    assert network.link_beta == pytest.approx(1 / payload, rel=0.05)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("alpha", "alfa", "network.alfa: there is no such key; expected network.alpha, network.beta"),
        ("[network]", "speed = 3\n[network]", "speed: there is no such key; expected transport, network"),
        ("[network]", "[other]\nx = 1\n[network]", "other: there is no such key"),
        ("[network]", "[net]", "net: there is no such key"),
        ('transport = "tcp"', "", "transport is missing"),
        ("beta", "#", "network.beta is missing; expected network.alpha, network.beta"),
        ('"tcp"', '"ipc"', "transport: it is for ipc, but this job uses tcp; measure"),
        ('"tcp"', '"udp"', "transport = 'udp': expected one of threads, shm, ipc, sockets, tcp"),
        ('"tcp"', "['tcp']", "transport = ['tcp']: expected one of"),
        ("alpha = 0.00015", "alpha = '1'", "network.alpha = '1': expected seconds per round, 1e-08 to 10"),
        ("alpha = 0.00015", "alpha = true", "network.alpha = True"),
        ("alpha = 0.00015", "alpha = nan", "network.alpha = nan"),
        ("alpha = 0.00015", "alpha = inf", "network.alpha = inf"),
        ("alpha = 0.00015", "alpha = 0", "network.alpha = 0: expected"),
        ("alpha = 0.00015", "alpha = 1e-320", "network.alpha = 1e-320: expected seconds per round, 1e-08 to 10"),
        ("alpha = 0.00015", "alpha = 9.9e-9", "network.alpha = 9.9e-09: expected"),
        ("beta = 6.6667e-10", "beta = 0", "network.beta = 0: expected seconds per byte, 1e-13 to 0.001"),
        ("beta = 6.6667e-10", "beta = 1e-14", "network.beta = 1e-14: expected"),
        ("alpha = 0.00015", "alpha = -0.1", "network.alpha = -0.1"),
        ("alpha = 0.00015", "alpha = 11", "network.alpha = 11"),
        ("alpha = 0.00015", f"alpha = 1{'0' * 400}", "network.alpha = 1000"),
        ("gamma = 2.5e-10", "gamma = -1e-9", "network.gamma = -1e-09: expected seconds per byte combined, 0 to 0.001"),
        ("gamma = 2.5e-10", "gamma = 4e9", "network.gamma = 4000000000.0"),
        ("lookahead = 5", "lookahead = 5.0", "network.lookahead = 5.0: expected a whole number of bytes"),
        ("lookahead = 5", "lookahead = -5", "network.lookahead = -5"),
        ("[network]", "[network", "is not TOML"),
        ("[network]", "[network]\nalpha = 1", "is not TOML"),
    ],
)
def test_what_cannot_be_is_refused_by_file_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert GOOD.count(old) >= 1
    file = tmp_path / "wrong.toml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        network_file.read(file, "tcp")
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)


def test_network_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text('transport = "tcp"\nnetwork = "fast"\n')
    with pytest.raises(ConfigError, match=r"wrong\.toml: network: expected a table"):
        network_file.read(tmp_path / "wrong.toml", "tcp")


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="binary: the configuration file is not TOML"):
        network_file.read(tmp_path / "binary", "tcp")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        network_file.read(tmp_path / "none", "tcp")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        network_file.read(tmp_path, "tcp")


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    network_file.write(tmp_path / "file", MEASURED, "tcp")
    assert (tmp_path / "file").read_text() == GOOD
    (tmp_path / "folder/full").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        network_file.write(tmp_path / "folder", NETWORKS["tcp"], "tcp")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.live
@pytest.mark.parametrize("by", ["option", "variable", "exported"])
def test_the_launcher_hands_the_file_to_all_ranks(tmp_path: Path, by: str) -> None:
    (tmp_path / "network.toml").write_text(GOOD.replace("alpha = 0.00015", "alpha = 0.125"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "program.py").write_text(SAY_ALPHA)
    options = {"option": ["--config", "network.toml"], "exported": ["-x", "RINGCAST_CONFIG=network.toml"]}.get(by, [])
    variables = {"RINGCAST_CONFIG": "network.toml"} if by == "variable" else {}
    words = [*options, "-n", "2", "--transport", "tcp", "--wdir", "elsewhere", "../program.py"]
    done = launch(tmp_path, *words, **variables)
    assert (done.returncode, done.stdout) == (0, "0.125\n0.125\n"), done.stderr


def test_the_launcher_refuses_a_wrong_file_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "network.toml").write_text(GOOD)
    program = ["-n", "2", "python", "-c", "open('started', 'w')"]
    for options in ["--config", "network.toml"], ["--config", "none.toml"], ["-x", "RINGCAST_CONFIG=none.toml"]:
        done = launch(tmp_path, *options, *program)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"ringcast-launch: {options[1].removeprefix('RINGCAST_CONFIG=')}: ")
    assert not (tmp_path / "started").exists()


@pytest.mark.live
def test_ranks_with_different_constants_are_refused_by_name(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"{rank}.toml").write_text(network_file.text(Network(1 + rank, 1e-9, 0, 0), "ipc"))
    choose = "import os; os.environ['RINGCAST_CONFIG'] = os.environ['RINGCAST_RANK'] + '.toml'\n"
    (tmp_path / "program.py").write_text(choose + SAY_ALPHA)
    done = launch(tmp_path, "-n", "2", "--transport", "ipc", "program.py")
    assert done.returncode == 1
    assert done.stdout == ""
    refusal, *_ = [line for line in done.stderr.splitlines() if "different algorithms" in line]
    for rank in range(2):
        assert f"rank {rank} has Network(alpha={1 + rank}.0" in refusal
    assert "give all ranks the same RINGCAST_CONFIG" in refusal


def test_a_program_alone_has_no_links_and_reads_no_file(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(
        [sys.executable, "-c", SAY_ALPHA],
        capture_output=True,
        text=True,
        timeout=patience(60),
        env=environment | {"RINGCAST_CONFIG": str(tmp_path / "none")},
    )
    assert (done.returncode, done.stdout) == (0, f"{NETWORKS['threads'].alpha}\n"), done.stderr


def test_init_without_a_launcher_reads_the_file(tmp_path: Path) -> None:
    control = f"ipc://{tmp_path}/control"
    done = subprocess.run(
        [sys.executable, "-c", SAY_ALPHA],
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={**os.environ, "RINGCAST_CONTROL": control, "RINGCAST_CONFIG": str(tmp_path / "none")},
    )
    assert done.returncode == 1
    assert f"ConfigError: {tmp_path}/none: the configuration file cannot be read" in done.stderr.splitlines()[-1]

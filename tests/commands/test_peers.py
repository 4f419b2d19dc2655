"""Peers: their command lines and environments, and what happens when one is not there. Nothing large is installed."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringcast.commands.bench import peers, systems
from ringcast.commands.bench.cases import Case
from ringcast.commands.bench.launch import Where, by_peer
from ringcast.commands.bench.peers import PEERS, PeerMissing
from ringcast.commands.bench.systems.agent import parse

VENV = Path("/cache/peer")
HOSTS = ("h0", "h1", "h2")
BY_MPIRUN = [name for name, peer in PEERS.items() if peer.mpirun]


class Starter:
    """Takes down what is to be started."""

    def __init__(self) -> None:
        self.started: list[tuple[int, list[str], dict[str, str]]] = []

    def __call__(self, i: int, command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        self.started.append((i, command, env))


def started(name: str, env: dict[str, str], options: Sequence[str] = ()) -> tuple[Starter, str]:
    """Return what a job of a peer with three ranks starts, and the command that is shown."""
    starter = Starter()
    launch = by_peer(name, VENV, Where(len(HOSTS), starter, env, options, "10.0.0.1", 4711))
    launch.start(Path("/tmp/x/orders"), 2)
    return starter, launch.command


@pytest.mark.parametrize("name", BY_MPIRUN)
def test_an_mpirun_starts_one_rank_on_each_host_by_the_agent(name: str) -> None:
    between = PEERS[name].between_hosts
    assert between is not None
    starter, _ = started(name, peers.on_bed(name, VENV), between(HOSTS, Path("/tmp/x/agent")))
    ((host, argv, _),) = starter.started
    worker = peers.worker(name, VENV, Path("/tmp/x/orders"))
    assert host == 0
    assert argv[-len(worker) :] == worker
    assert argv[0].startswith(f"{VENV}/bin/mpi")
    assert argv[argv.index("-n") + 1] == "3"
    assert "/tmp/x/agent" in argv
    assert any([part.partition(":")[0] for part in word.split(",")] == list(HOSTS) for word in argv)


@pytest.mark.parametrize("name", PEERS)
def test_nothing_of_the_users_settings_tunes_a_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = peers.on_bed(name, VENV), peers.on_one_host(name, VENV, Path("/tmp/x"))
    for variable in ("OMPI_MCA_btl", "FI_PROVIDER", "I_MPI_FABRICS", "PYTHONPATH", "LD_PRELOAD", "RINGCAST_RANK"):
        monkeypatch.setenv(variable, "x")
    assert (peers.on_bed(name, VENV), peers.on_one_host(name, VENV, Path("/tmp/x"))) == ours
    assert all(env["PATH"].startswith(f"{VENV}/bin:") for env in ours)


@pytest.mark.parametrize("name", PEERS)
def test_on_one_host_no_peer_is_kept_from_shared_memory(name: str) -> None:
    env = peers.on_one_host(name, VENV, Path("/tmp/x"))
    assert not {variable for variable, value in env.items() if "tcp" in (variable + value).lower().replace("tcpp", "")}
    assert not set(PEERS[name].tcp_settings) & set(env)
    assert env["TMPDIR"] == "/tmp/x"
    starter, command = started(name, env, PEERS[name].on_one_host)
    assert "agent" not in command
    assert [i for i, _, _ in starter.started] == ([0] if PEERS[name].mpirun else [0, 1, 2])


@pytest.mark.parametrize("name", sorted(PEERS.keys() - BY_MPIRUN))
def test_ranks_without_an_mpirun_are_told_where_they_meet(name: str) -> None:
    starter, _ = started(name, peers.on_bed(name, VENV))
    for rank, (host, argv, env) in enumerate(starter.started):
        assert host == rank
        assert argv == peers.worker(name, VENV, Path("/tmp/x/orders"))
        told = [env[variable] for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
        assert told == [str(rank), "3", "10.0.0.1", "4711"]


def test_the_command_is_shown_as_a_person_would_type_it() -> None:
    _, command = started("impi", peers.on_one_host("impi", VENV, Path("/tmp/x")), PEERS["impi"].on_one_host)
    assert command == "mpiexec.hydra -n 3 python mpi.py"
    _, command = started("gloo", peers.on_one_host("gloo", VENV, Path("/tmp/x")))
    assert command == "OMP_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR GLOO_SOCKET_IFNAME=lo python gloo.py"


def test_a_copy_by_numpy_is_done_by_rank_1_and_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    case = Case("bandwidth", 2, 1000)
    folder = str(Path(systems.__file__).parent)
    monkeypatch.syspath_prepend(folder)
    copies = runpy.run_path(f"{folder}/numpy_copy.py")["CopySystem"]
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        system = copies("numpy")
        assert system.prepare(replace(case, collective="bcast").to_json()) is None
        assert system.prepare(case.to_json()) is not None
        assert system.check() == ""
    system._source[3] += 1
    assert "item 3 is" in system.check()


@pytest.mark.parametrize("name", PEERS)
def test_a_worker_is_a_script_that_needs_no_ringcast(name: str) -> None:
    python, script, *arguments = peers.worker(name, VENV, Path("/tmp/x/orders"))
    assert python == f"{VENV}/bin/python"
    assert arguments == [name, "/tmp/x/orders"]
    folder = Path(script).parent
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import harness, workload, agent; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    assert not [module for module in loaded.split() if module.startswith("ringcast")]


def test_the_agent_understands_what_mpiruns_say() -> None:
    assert parse(["h3", "PATH=/x:$PATH ; export PATH ; /x/prted --uri", "a;b"]) == (
        "h3",
        "PATH=/x:$PATH ; export PATH ; /x/prted --uri a;b",
    )
    assert parse(["-x", "h12", "/x/hydra_pmi_proxy", "--rmk", "user"]) == ("h12", "/x/hydra_pmi_proxy --rmk user")


@pytest.fixture
def nothing_on_earth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let gloo need a package that is nowhere; returns the folder for its environment."""
    nowhere = replace(PEERS["gloo"], requirements=(str(tmp_path / "no-such-package"),))
    monkeypatch.setattr(peers, "PEERS", {**PEERS, "gloo": nowhere})
    return tmp_path / "peers"


@pytest.mark.live
def test_a_peer_that_cannot_be_installed_says_why(nothing_on_earth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PeerMissing, match=r"not installed: ERROR: .*no-such-package"):
        peers.install("gloo", nothing_on_earth)
    said = capsys.readouterr().err
    assert "ringcast bench: pip install" in said
    assert "several GB" in said
    assert "stays until you delete that folder" in said
    assert not (nothing_on_earth / "gloo/complete").exists()


def test_what_venv_says_on_standard_output_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ensurepip is not available'\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(PeerMissing, match="not installed: ensurepip is not available"):
        peers.install("mpich", tmp_path / "peers")


def test_no_folder_is_a_reason_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PeerMissing, match=r"not installed: .*Not a directory"):
        peers.install("gloo", tmp_path / "file/peers")


def test_what_is_installed_stays_until_it_should_be_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def make(venv: Path, requirements: tuple[str, ...]) -> None:
        venv.mkdir(exist_ok=True)
        made.append(" ".join(requirements))

    monkeypatch.setattr(peers, "_make", make)
    for _ in range(2):
        assert peers.install("mpich", tmp_path) == tmp_path / "mpich"
    monkeypatch.setattr(peers, "PEERS", {"mpich": replace(PEERS["mpich"], requirements=("mpich==1.0",))})
    peers.install("mpich", tmp_path)
    assert made == ["mpi4py mpich numpy", "mpich==1.0"]
    assert capsys.readouterr().err.count("pip install") == 2


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert peers.cache() == tmp_path / "ringcast/peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert peers.cache() == Path.home() / ".cache/ringcast/peers"

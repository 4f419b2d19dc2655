"""The variables of engines give rank, size and a meeting point, without any setup."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.bootstrap import rendezvous
from ringcast.config import cluster
from ringcast.config.cluster import LaunchContext, find, hosts
from ringcast.config.worker import WorkerConfig, from_environment
from ringcast.control import new_key
from ringcast.errors import ConfigError, RendezvousError
from ringcast.procs.child_processes import RankProcess
from support.patience import patience
from support.places import ROOT

STEP = {
    "SLURM_CLUSTER_NAME": "big",
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[08-09]",
    "SLURM_LOCALID": "1",
    "HOME": "/home/ann",
}
ONE_NODE = STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n08"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
OPEN_MPI |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "3", "PMIX_NAMESPACE": "prterun-n08-77@1"}
PMI = {"PMI_RANK": "2", "PMI_SIZE": "4"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"MASTER_ADDR": "n08", "MASTER_PORT": "29500"}
POD = {"JOB_COMPLETION_INDEX": "2", "RINGCAST_SIZE": "3", "RINGCAST_CONTROL": "tcp://job-0.ringcast:20000"}
KEY = new_key()


def test_a_process_that_no_engine_started_has_no_place() -> None:
    assert find({}) is None
    assert find({"PATH": "/bin", "RANK": "1", "SLURM_JOB_ID": "17"}) is None


def test_slurm_tells_everything() -> None:
    assert find(STEP) == LaunchContext("Slurm", 5, 8, 1, 2, "n08", "n09", "slurm-big-17.2.0")
    assert find(STEP | {"SLURM_RESTART_COUNT": "3"}) == LaunchContext(
        "Slurm", 5, 8, 1, 2, "n08", "n09", "slurm-big-17.2.3"
    )


@pytest.mark.parametrize("step", [None, "4294967291", "4294967290"], ids=["batch", "batch step", "interactive step"])
def test_a_script_in_an_allocation_is_alone(step: str | None) -> None:
    inside = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    inside |= {"SLURM_STEP_ID": step} if step else {}
    assert from_environment(inside) == WorkerConfig()


def test_a_step_counts_its_own_tasks() -> None:
    one = find(STEP | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"})
    assert one is not None
    assert one.size == 1


def test_the_other_engines_tell_rank_and_size() -> None:
    assert find(OPEN_MPI) == LaunchContext("Open MPI", 1, 3, 1, 1, job="openmpi-prterun-n08-77@1")
    assert find(PMI) == LaunchContext("PMI", 2, 4)
    assert find(TORCHRUN) == LaunchContext("RANK and WORLD_SIZE", 1, 4, 1, None, "n08", job="torchrun-n08-29500--")
    assert find(POD) == LaunchContext("Kubernetes", 2, 3, job="kubernetes-tcp://job-0.ringcast:20000")


@pytest.mark.parametrize("inner", [OPEN_MPI, PMI, TORCHRUN], ids=["Open MPI", "PMI", "torchrun"])
def test_the_innermost_engine_counts_unless_slurm_says_the_same(inner: dict[str, str]) -> None:
    alone = find(inner)
    assert alone is not None
    assert find(STEP | inner) == alone  # mpirun starts its own processes with srun
    same = {"SLURM_PROCID": str(alone.rank), "SLURM_STEP_NUM_TASKS": str(alone.size)}
    told = find(STEP | same | inner)  # srun --mpi=pmi2
    assert told is not None
    assert told.engine == "Slurm"


@pytest.mark.parametrize("engine", [STEP, OPEN_MPI, PMI, TORCHRUN, POD])
def test_ringcast_variables_win(engine: dict[str, str]) -> None:
    ours = WorkerConfig(1, 2, "ipc:///tmp/job/control", nonce=7, directory="/tmp/job")
    assert from_environment(engine | ours.environment()) == ours
    assert from_environment(engine | {"RINGCAST_SIZE": "1", "RINGCAST_CONTROL": ""}) == WorkerConfig()


@pytest.mark.parametrize("engine", [STEP, ONE_NODE, OPEN_MPI, TORCHRUN | {"HOME": "/home/ann"}, POD])
def test_no_process_of_several_is_a_lonely_rank_0(engine: dict[str, str]) -> None:
    expected = find(engine)
    assert expected is not None
    config = from_environment(engine | {"RINGCAST_KEY": KEY})
    assert (config.rank, config.size) == (expected.rank, expected.size)
    assert config.control


def test_one_host_meets_in_a_directory_of_its_own() -> None:
    config = from_environment(ONE_NODE | {"TMPDIR": "/scratch"})
    directory = f"/scratch/ringcast-{os.getuid()}-slurm-big-17.2.0"
    assert (config.control, config.directory) == (f"ipc://{directory}/control", directory)
    assert config.temporary
    assert from_environment(ONE_NODE | {"TMPDIR": "/x" * 60}).directory.startswith("/tmp/ringcast-")
    given = from_environment(PMI | {"RINGCAST_DIR": "/tmp/mine"})
    assert given.control == "ipc:///tmp/mine/control"
    assert not given.temporary  # who made it removes it


def test_several_hosts_meet_at_the_first_one_or_by_a_file() -> None:
    by_file = from_environment(STEP)
    assert by_file.control == "file:///home/ann/.ringcast/slurm-big-17.2.0"
    assert by_file.transport == "sockets"
    at_head = from_environment(STEP | {"RINGCAST_KEY": KEY})
    assert re.fullmatch(r"tcp://n08:2\d{4}", at_head.control)
    assert from_environment(ONE_NODE | {"RINGCAST_KEY": KEY, "RINGCAST_TRANSPORT": "tcp"}).control.startswith(
        "tcp://127.0.0.1:2"
    )
    assert by_file.nonce == at_head.nonce != from_environment(STEP | {"SLURM_STEP_ID": "3"}).nonce


@pytest.mark.parametrize("engine", [STEP, ONE_NODE, OPEN_MPI, PMI, TORCHRUN, POD])
def test_a_child_of_a_rank_needs_no_place_to_meet(engine: dict[str, str]) -> None:
    context = find(engine)
    assert context is not None
    parent = RankProcess(cluster.nonce(context.job) if context.job else 0, context.rank, os.getppid(), 5, 99)
    left = {**engine, "RINGCAST_JOINED": str(parent), "HOME": ""}  # without the key
    assert from_environment(left).parent == parent
    assert from_environment(left | {"RINGCAST_SIZE": "1", "RINGCAST_CONTROL": ""}) == WorkerConfig()


@given(st.text(max_size=60))
def test_a_job_has_a_port_a_number_and_a_short_name(job: str) -> None:
    assert cluster.port(job) in cluster.PORTS
    assert 0 <= cluster.nonce(job) < 1 << 64
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,40}", cluster.file_name(job))


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (STEP | {"SLURM_PROCID": "8"}, "rank 8 of 8"),
        (STEP | {"SLURM_PROCID": "-1"}, "SLURM_PROCID='-1'"),
        (STEP | {"SLURM_STEP_NODELIST": "n[8-"}, "not a list"),
        (STEP | {"HOME": ""}, "no variable says where the ranks meet"),
        (PMI, r"export RINGCAST_DIR=\$\(mktemp -d\)"),
        (TORCHRUN | {"MASTER_ADDR": ""}, "RANK and WORLD_SIZE: this is rank 1 of 4, but"),
        ({"JOB_COMPLETION_INDEX": "0"}, "(?s)subdomain: ringcast.*clusterIP: None"),
        (POD | {"RINGCAST_CONTROL": ""}, "secretKeyRef"),
        (POD, r"RINGCAST_KEY: tcp needs.*export RINGCAST_KEY=\$"),
    ],
)
def test_what_makes_no_sense_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_environment(env)


NUMBERS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=3)
NAME = st.from_regex(r"[a-z][a-z-]{0,3}", fullmatch=True)


@given(st.lists(st.tuples(NAME, st.none() | NUMBERS, st.sampled_from(["", "x", "-y"])), min_size=1, max_size=4))
def test_node_lists_are_expanded_in_order(parts: list[tuple[str, list[tuple[int, int, int]] | None, str]]) -> None:
    texts, expected = [], []
    for head, ranges, tail in parts:
        if ranges is None:
            texts.append(head + tail)
            expected.append(head + tail)
            continue
        written = [f"{a:0{w}}-{a + n:0{w}}" if n else f"{a:0{w}}" for a, n, w in ranges]
        texts.append(f"{head}[{','.join(written)}]{tail}")
        expected += [f"{head}{i:0{max(w, len(str(a)))}}{tail}" for a, n, w in ranges for i in range(a, a + n + 1)]
    assert hosts(",".join(texts)) == expected


@pytest.mark.parametrize("text", ["", ",", "a,", "a[", "a[]", "a[1-]", "a[3-1]", "a[1,,2]", "a b", "a]1[", "a[x]"])
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a (list|range)"):
        hosts(text)


PROGRAM = """
import numpy, ringcast
comm = ringcast.init()
print(comm.rank, comm.size, comm.allreduce(numpy.array(comm.rank)))
"""


def start(env: dict[str, str]) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGCAST_", "SLURM_"))}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=kept | {"RINGCAST_START_TIMEOUT": f"{patience(40):g}"} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_all(environments: list[dict[str, str]]) -> list[tuple[str, str]]:
    started = [start(env) for env in environments]
    return [process.communicate(timeout=patience(100)) for process in started]


@pytest.mark.live
@pytest.mark.parametrize("engine", ["Slurm on one node", "Slurm on two nodes", "a key and a head", "Open MPI"])
def test_ranks_find_each_other_and_leave_nothing(engine: str, short_path: Path) -> None:
    base = {"HOME": str(short_path), "TMPDIR": str(short_path)}
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "3"}
    environments = {
        "Slurm on one node": [ONE_NODE | job | {"SLURM_PROCID": str(rank)} for rank in range(3)],
        "Slurm on two nodes": [STEP | job | {"SLURM_PROCID": str(rank)} for rank in range(3)],
        "a key and a head": [
            STEP | job | {"SLURM_PROCID": str(rank), "RINGCAST_KEY": KEY, "SLURM_STEP_NODELIST": "localhost,n09"}
            for rank in range(3)
        ],
        "Open MPI": [OPEN_MPI | {"OMPI_COMM_WORLD_RANK": str(rank)} for rank in range(3)],
    }
    said = run_all([env | base for env in environments[engine]])
    assert [out for out, _ in said] == [f"{rank} 3 3\n" for rank in range(3)], said
    deadline = time.monotonic() + patience(10)
    while left := [path for path in short_path.rglob("*") if path.name != ".ringcast"]:
        assert time.monotonic() < deadline, left  # the control plane's process is the last one
        time.sleep(0.05)


def test_a_rank_that_waits_for_the_file_says_what_to_do(tmp_path: Path) -> None:
    config = WorkerConfig(1, 2, f"file://{tmp_path}/own/job", transport="tcp", start_timeout=0.2)
    with pytest.raises(RendezvousError, match=r"rank 0 has not written .*job within 0.2 s.*export RINGCAST_KEY=\$"):
        rendezvous.rendezvous(config).__enter__()


def test_a_pod_that_finds_no_service_shows_the_one_to_make() -> None:
    config = from_environment(POD | {"RINGCAST_KEY": KEY, "RINGCAST_START_TIMEOUT": "0.1"})
    config = replace(config, control="tcp://job-0.invalid:20000")  # a domain that nobody has (RFC 2606)
    with pytest.raises(RendezvousError, match=r"rank 2: job-0\.invalid(?s:.*)clusterIP: None"):
        rendezvous.rendezvous(config).__enter__()


@pytest.mark.parametrize("mode", [0o755, 0o770, "link"])
def test_a_directory_that_others_may_enter_is_refused(mode: int | str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (tmp_path / "real").mkdir(mode=0o700)
    if isinstance(mode, int):
        folder.mkdir()
        folder.chmod(mode)
    else:
        folder.symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="yours alone"):
        rendezvous.private(folder)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"control": 3, "key": "x"}', '{"control": "ipc:///x", "key": "x"}', "\xff"]
)
def test_a_file_that_rank_0_has_not_written_is_refused(text: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "job").write_text(text, encoding="latin-1")
    config = WorkerConfig(1, 2, f"file://{tmp_path}/job", transport="tcp", start_timeout=5)
    with pytest.raises(RendezvousError, match="rank 0"):
        rendezvous.rendezvous(config).__enter__()


def test_two_ranks_0_of_one_job_are_an_error(tmp_path: Path, nothing_left: None) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "job").write_text("of another one")
    config = WorkerConfig(0, 2, f"file://{tmp_path}/job", transport="tcp")
    with pytest.raises(ConfigError, match="is there already"):
        rendezvous.rendezvous(config).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_the_image_is_made_of_files_that_are_there() -> None:
    lines = (ROOT / "configs/Dockerfile").read_text().splitlines()
    copied = [source for line in lines if line.startswith("COPY ") for source in line.split()[1:-1]]
    assert copied
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_manifest_has_what_the_error_asks_for() -> None:
    """Without a parser for YAML: the file keeps to lines of `key: value` and `- item`, which are compared as words."""
    text = (ROOT / "configs/kubernetes.yaml").read_text()
    lines = [re.sub(r"\s#.*|^#.*", "", line) for line in text.splitlines()]
    for line in lines:
        assert not (len(line) - len(line.lstrip())) % 2, line
        assert re.fullmatch(r" *(- )*([\w-]+:( .+)?|.+)|---|", line), line
    words = " ".join(" ".join(lines).split())
    for needed in (
        "clusterIP: None",
        "publishNotReadyAddresses: true",
        "completionMode: Indexed",
        "subdomain: ringcast",
    ):
        assert needed in words
        assert needed in cluster.KUBERNETES_SERVICE + cluster.KUBERNETES_POD
    job = re.search(r"kind: Job metadata: name: (\w+)", words)
    assert job is not None
    assert f"selector: job-name: {job[1]} " in words
    size = re.search(r"completions: (\d+) parallelism: (\d+)", words)
    assert size is not None
    assert size[1] == size[2]
    env = dict(re.findall(r'- name: (RINGCAST_\w+) value: "?([^" ]+)', words))
    assert "- name: RINGCAST_KEY valueFrom: secretKeyRef: name: ringcast key: key" in words
    config = from_environment(env | {"JOB_COMPLETION_INDEX": "3", "RINGCAST_KEY": KEY})
    assert (config.rank, config.size) == (3, int(size[1]))
    assert config.control == f"tcp://{job[1]}-0.ringcast:{cluster.PORTS[0]}"

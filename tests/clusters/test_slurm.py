"""A real Slurm of two nodes: srun starts ranks that find each other by themselves."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ringcast.control import new_key
from ringcast_launcher.hosts import remote_host
from support import needs, slurm
from support.patience import patience
from support.places import ROOT, python
from support.ports import free_port
from support.sources import check_table, write_tree

pytestmark = pytest.mark.long
SUM = "import ringcast; comm = ringcast.init(); print(comm.rank, comm.size, comm.allreduce(comm.rank))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    needs.programs(slurm.missing(), "slurm-wlm")
    with slurm.cluster() as started:
        yield started


@pytest.fixture
def home() -> Iterator[dict[str, str]]:
    """The files of a user's session; afterwards nothing is left in it."""
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:  # short: sockets are made in there
        for name in "home", "tmp":
            Path(folder, name).mkdir(mode=0o700)
        yield {"HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp"}
        deadline = time.monotonic() + patience(10)
        while left := [path for path in Path(folder).rglob("*") if path.name not in ("home", "tmp", ".ringcast")]:
            assert time.monotonic() < deadline, left  # the control plane's process is the last one
            time.sleep(0.05)


def srun(cluster: slurm.Cluster, *arguments: str, code: int = 0, **variables: str) -> str:
    done = cluster.run("srun", *arguments, **variables)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{cluster.logs()}"
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_srun_prints_the_right_table(nodes: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    limits = ("--limit", "40", "--top", "3")
    said = srun(
        cluster, "-N", nodes, "-n", "4", sys.executable, str(ROOT / "examples" / "identifiers.py"), *limits, **home
    )
    assert "shared by 4 ranks" in said
    assert said.count("shared by") == 1
    assert said.endswith("equal to the one-process count\n")


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_all_ranks_are_in_one_job(nodes: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    said = srun(cluster, "-N", nodes, "-n", "3", sys.executable, "-c", SUM, **home)
    assert sorted(said.splitlines()) == ["0 3 3", "1 3 3", "2 3 3"]


def test_with_a_key_nothing_is_shared_but_the_network(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    given = home | {"HOME": "/nowhere", "RINGCAST_KEY": new_key(), "RINGCAST_TRANSPORT": "tcp"}
    here = {"RINGCAST_CONTROL": f"tcp://127.0.0.1:{free_port()}"}  # the nodes' names mean nothing here
    for nodes, variables in ("1", given), ("2", given | here):
        said = srun(cluster, "-N", nodes, "-n", "2", sys.executable, "-c", SUM, **variables)
        assert sorted(said.splitlines()) == ["0 2 1", "1 2 1"]


@pytest.mark.parametrize("place", range(3))
def test_the_commands_of_the_page_work(place: int, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    commands = re.findall(r"^srun .*$", (ROOT / "docs/use/engines.md").read_text(), re.MULTILINE)
    assert len(commands) == 3
    program = cluster.folder / "program.py"
    program.write_text(SUM)
    ranks = int(commands[place].split("-n ")[1].split()[0])
    words = [sys.executable if word == "python" else word for word in commands[place].split()[1:]]
    said = srun(cluster, *words, **home)
    assert sorted(said.splitlines()) == [f"{rank} {ranks} {sum(range(ranks))}" for rank in range(ranks)]


@pytest.mark.parametrize("command", ["salloc", "sbatch", "srun"])
def test_the_commands_of_the_page_on_launching_work(command: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    page = (ROOT / "docs/use/launching.md").read_text()
    (line,) = re.findall(rf"^{command} .*$", page, re.MULTILINE)
    link = cluster.folder / "examples"
    link.unlink(missing_ok=True)
    link.symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{slurm.SEARCHED}"
    done = cluster.run(*shlex.split(line), **home, PATH=path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{cluster.logs()}"
    said = (cluster.folder / "said").read_text() if command == "sbatch" else done.stdout
    assert "shared by 4 ranks" in said
    assert "equal to the one-process count\n" in said


def test_steps_of_one_job_are_worlds_of_their_own(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    step = f"srun --overlap -n 2 {python('-c', SUM)}"
    (cluster.folder / "steps.sh").write_text(f"#!/bin/sh\n{step} >first &\n{step} >second\nwait\n")
    done = cluster.run("sbatch", "--wait", "-n", "4", "steps.sh", **home)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.logs()}"
    for name in "first", "second":
        assert sorted((cluster.folder / name).read_text().splitlines()) == ["0 2 1", "1 2 1"]


def test_a_batch_script_is_one_process(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    (cluster.folder / "alone.sh").write_text(f"#!/bin/sh\n{python('-c', SUM)} >alone\n")
    done = cluster.run("sbatch", "--wait", "-n", "4", "alone.sh", **home)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.logs()}"
    assert (cluster.folder / "alone").read_text() == "0 1 0\n"


def test_tasks_that_are_to_be_alone_say_so(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    said = srun(cluster, "-n", "3", sys.executable, "-c", SUM, RINGCAST_SIZE="1", **home)
    assert said.splitlines() == ["0 1 0"] * 3


def test_a_rank_that_dies_ends_the_others(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    program = "import os, ringcast\ncomm = ringcast.init()\nif comm.rank == 1: os._exit(3)\ncomm.barrier()"
    before = time.monotonic()
    said = srun(cluster, "-N", "2", "-n", "2", sys.executable, "-c", program, code=3, **home)
    assert "PeerFailed: rank 0: peer rank 1" in said
    assert time.monotonic() - before < patience(60)


LAUNCH = (sys.executable, "-m", "ringcast_launcher")
EXAMPLE = (str(ROOT / "examples" / "identifiers.py"), "--limit", "40", "--top", "3")
WAITS = """
import ringcast, subprocess, time
subprocess.Popen(["sleep", "4711"], start_new_session=True)
with ringcast.init() as comm:
    comm.barrier()
    if comm.rank == 0:
        print("all are up", flush=True)
    time.sleep(600)
"""


def launch(cluster: slurm.Cluster, *arguments: str, code: int = 0, **variables: str) -> tuple[str, str]:
    """Run the launcher in an allocation of two nodes, from outside of them; return what it printed."""
    done = cluster.run("salloc", "--quiet", "-N2", "-n3", *LAUNCH, *arguments, **variables)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{cluster.logs()}"
    return done.stdout, done.stderr


@contextlib.contextmanager
def nothing_stays(home: dict[str, str]) -> Iterator[None]:
    """Afterwards no process of the user's session is left on the nodes."""
    yield
    deadline = time.monotonic() + patience(30)
    while left := [process for process in psutil.process_iter(["environ", "cmdline"]) if is_of(process, home)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def is_of(process: psutil.Process, home: dict[str, str]) -> bool:
    return (process.info["environ"] or {}).get("HOME") == home["HOME"]


def test_the_launcher_runs_on_the_nodes_of_its_allocation(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    program = (
        "import os; print(os.environ['SLURMD_NODENAME'], os.environ['SLURM_NTASKS'], 'SLURM_PROCID' in os.environ)"
    )
    said, _ = launch(cluster, "python", "-c", program, **home)
    assert sorted(said.splitlines()) == [f"[{r}] ringcast{node} 3 False" for r, node in enumerate((1, 1, 2))]


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_identifiers_prints_the_right_table(
    command: str, cluster: slurm.Cluster, home: dict[str, str], tmp_path: Path
) -> None:
    write_tree(tmp_path)
    example = (str(ROOT / "examples" / "identifiers.py"), "--path", str(tmp_path), "--top", "3")
    if command == "srun":
        said = srun(cluster, "-N2", "-n3", sys.executable, *example, **home)
    else:
        said, _ = launch(cluster, "--output", "none", *example, **home)
    check_table(said, tmp_path, 3)


def test_a_batch_script_runs_on_the_first_of_the_nodes(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    launcher = shlex.join(LAUNCH)
    script = f"{launcher} {shlex.join(EXAMPLE)} >said\n{launcher} -n 2 -N 1 -v python -c '{SUM}' >sum 2>words\n"
    (cluster.folder / "batch.sh").write_text(f"#!/bin/sh\n{script}")
    done = cluster.run("sbatch", "--wait", "-N2", "-n", "3", "batch.sh", **home)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.logs()}"
    said = (cluster.folder / "said").read_text()
    assert "shared by 3 ranks" in said
    assert said.endswith("equal to the one-process count\n")
    assert sorted((cluster.folder / "sum").read_text().splitlines()) == ["[0] 0 2 1", "[1] 1 2 1"]
    words = (cluster.folder / "words").read_text()
    assert re.search(r"rank 0 is pid [0-9]+: .*\n.*rank 1 is pid [0-9]+ on ringcast2: ", words)


def test_output_comes_whole_through_srun_whatever_its_bytes_are(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    noise = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4000 + b'no end of line')"
    folder = home["TMPDIR"]
    settings = {"SLURM_LABELIO": "1", "SRUN_CPUS_PER_TASK": "1", "SLURM_STDOUTMODE": "none"}
    launch(cluster, "--output", f"file={folder}/out-%r", "python", "-c", noise, **home, **settings)
    for rank in range(3):
        path = Path(folder, f"out-{rank}")
        assert path.read_bytes() == bytes(range(256)) * 4000 + b"no end of line\n"
        path.unlink()


def test_a_rank_that_fails_is_named_with_its_node(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    program = "import ringcast\ncomm = ringcast.init()\nif comm.rank == 2: raise OSError('no data')\ncomm.barrier()"
    with nothing_stays(home):
        _, said = launch(cluster, "python", "-c", program, code=1, **home)
    assert re.search(r"rank 2 \(ringcast2, pid [0-9]+\) failed: OSError: no data\n", said)


@contextlib.contextmanager
def waiting(command: str, cluster: slurm.Cluster, home: dict[str, str]) -> Iterator[tuple[int, Path]]:
    """Start a job of 4 ranks that wait; yield the pid of salloc or sbatch, and where the output goes, of which the end
    must be a failure."""
    (cluster.folder / "waits.py").write_text(WAITS)
    script, said = cluster.folder / "waits.sh", cluster.folder / f"waits-{command}"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(LAUNCH)} waits.py\n")
    script.chmod(0o700)
    options = ["--quiet"] if command == "salloc" else ["--wait", f"--output={said}"]
    argv, env = [command, "-N2", "-n4", *options, str(script)], cluster.environment | home
    with said.open("wb") as output:
        files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        with subprocess.Popen(argv, cwd=cluster.folder, env=env, **files) as process:
            deadline = time.monotonic() + patience(60)
            while "all are up" not in said.read_text():
                assert time.monotonic() < deadline, f"{said.read_text()}\n{cluster.logs()}"
                time.sleep(0.05)
            yield process.pid, said
            code = process.wait(patience(60))
    assert code != 0 or (command == "sbatch" and failed_in_the_end(cluster))


def failed_in_the_end(cluster: slurm.Cluster) -> bool:
    """Return whether Slurm records a failure of its last job, which it may do after `sbatch --wait` has ended."""
    deadline = time.monotonic() + patience(60)
    while time.monotonic() < deadline:
        if re.findall(r"ExitCode=(\d+:\d+)", cluster.run("scontrol", "show", "job").stdout)[-1] != "0:0":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_a_cancelled_allocation_leaves_nothing(command: str, cluster: slurm.Cluster, home: dict[str, str]) -> None:
    with nothing_stays(home), waiting(command, cluster, home) as (_, said):
        cluster.run("scancel", "--user", str(os.getuid()))
    # Slurm tells it whom it likes first: the launcher, the agents, or the ranks that run beside the launcher.
    assert re.search("ringcast-launch: (ended by SIGTERM|rank .* (CANCELLED AT|killed by SIGTERM))", said.read_text())


def of_node(pid: int, node: str) -> list[psutil.Process]:
    """Return the processes below this one that are srun for a node: first its guard, a child that has its name.

    If that outlives srun it has Slurm kill the whole step, with everybody who could clean up.
    """
    below = {process.pid for process in psutil.Process(pid).children(recursive=True)}
    running = [process for process in psutil.process_iter(["cmdline", "ppid"]) if process.pid in below]
    found = {each.pid: each for each in running if f"--nodelist={node}" in (each.info["cmdline"] or [])}
    return sorted(found.values(), key=lambda each: each.info["ppid"] not in found)


def test_a_node_counts_as_lost_only_when_its_agent_has_had_the_time_to_end(
    cluster: slurm.Cluster, home: dict[str, str]
) -> None:
    with nothing_stays(home), waiting("salloc", cluster, home) as (pid, said):
        for process in of_node(pid, "ringcast2"):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has followed its guard
                process.kill()
        before = time.monotonic()
    assert time.monotonic() - before > remote_host.SILENCE
    named = r"rank [0-3] \(ringcast2, pid [0-9]+\) failed: the connection to its host ringcast2 was lost"
    assert re.search(named, said.read_text())


def test_several_launchers_in_a_step_are_one_error(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    said = srun(cluster, "-n", "4", *LAUNCH, "python", "-c", SUM, code=2, **home)
    assert said.count("ringcast-launch:") == 1
    assert "Slurm has started this launcher 4 times, and each would start a job of its own" in said
    assert srun(cluster, "-n", "1", *LAUNCH, "-n", "1", "python", "-c", SUM, **home) == "[0] 0 1 0\n"


def test_what_srun_says_is_told_where_no_agent_starts(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    ended = {"SLURM_JOB_ID": "4000000", "SLURM_JOB_NODELIST": "ringcast[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"}
    done = cluster.run(*LAUNCH, "python", "-c", SUM, **home, **ended)
    assert done.returncode == 1
    # The first one that fails is told first.
    assert re.search(r"the job cannot start: host ringcast[12]: its agent cannot be started \(srun ", done.stderr)
    assert "Invalid job id" in done.stderr


def test_a_home_that_is_not_shared_is_said_to_be_the_cause(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    own = 'export HOME="$HOME/$SLURMD_NODENAME"; exec "$0" "$@"'
    for node in slurm.NODES:
        Path(home["HOME"], node).mkdir()
    program = (sys.executable, "-c", SUM)
    said = srun(cluster, "-N2", "-n2", "sh", "-c", own, *program, code=1, **home, RINGCAST_START_TIMEOUT="3")
    assert "rank 1: rank 0 has not written" in said
    assert "export RINGCAST_KEY=$(python" in said
    for node in slurm.NODES:
        os.rmdir(Path(home["HOME"], node, ".ringcast"))
        os.rmdir(Path(home["HOME"], node))


CP = (sys.executable, "-m", "ringcast", "cp")


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_files_are_copied_to_all_nodes_of_the_allocation(
    command: str, cluster: slurm.Cluster, home: dict[str, str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    script = cluster.folder / "cp.sh"
    script.write_text(f"#!/bin/sh\n{shlex.join(CP)} {source} :there/\n")
    script.chmod(0o755)
    options = ["--quiet"] if command == "salloc" else ["--wait", f"--output={cluster.folder}/said"]
    with nothing_stays(home):
        done = cluster.run(command, "-N2", *options, str(script), **home, HOMES=str(tmp_path))
    said = done.stdout if command == "salloc" else (cluster.folder / "said").read_text()
    assert done.returncode == 0, f"{said}{done.stderr}\n{cluster.logs()}"
    assert said.startswith("2 of 2 hosts have 1 files, 3,000,000 bytes: 3,000,000 sent in ")
    for node in slurm.NODES:
        assert (tmp_path / node / "there" / "source").read_bytes() == source.read_bytes()


POOL = """
import collections, os, sys, ringcast

def node(comm):
    comm.barrier()
    return os.environ.get("SLURMD_NODENAME")

if __name__ == "__main__":
    hosts = sys.argv[1] if len(sys.argv) > 1 else None
    with ringcast.Pool(hosts=hosts) as pool:
        print(sorted(collections.Counter(pool.submit_ranks(pool.size, node).result()).items()))
        print(sum(pool.map(abs, range(-100, 100))), flush=True)
"""


def pool_said(command: str, cluster: slurm.Cluster, *arguments: str, **home: str) -> list[str]:
    """Return the lines that the program prints in an allocation of two nodes with three tasks."""
    (cluster.folder / "where.py").write_text(POOL)
    script = cluster.folder / "where.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, 'where.py', *arguments])} >told 2>&1\n")
    script.chmod(0o700)
    options = ["--quiet"] if command == "salloc" else ["--wait"]
    done = cluster.run(command, "-N2", "-n3", *options, "./where.sh", **home)
    told = (cluster.folder / "told").read_text()
    assert done.returncode == 0, f"{told}\n{done.stderr}\n{cluster.logs()}"
    return told.splitlines()


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_without_arguments_a_pool_has_the_tasks_of_its_allocation(
    command: str, cluster: slurm.Cluster, home: dict[str, str]
) -> None:
    with nothing_stays(home):
        assert pool_said(command, cluster, **home) == ["[('ringcast1', 2), ('ringcast2', 1)]", "10000"]


def test_nodes_that_are_named_are_reached_by_srun(cluster: slurm.Cluster, home: dict[str, str]) -> None:
    with nothing_stays(home):
        assert pool_said("sbatch", cluster, "ringcast2:2", **home) == ["[('ringcast2', 2)]", "10000"]

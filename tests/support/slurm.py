"""A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd with directories of their own."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.patience import patience
from support.ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "sinfo")
SEARCHED = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
NODES = ("ringcast1", "ringcast2")
UP = 60.0  # seconds that a busy machine may take to have the nodes idle

CONFIGURATION = """
ClusterName=ringcast
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmctldPort={controller}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=2
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=10 State=UP
"""

# With a directory in HOMES each node has a home of its own in it, as where homes are not shared.
PROLOG = """\
#!/bin/sh
[ -z "$HOMES" ] || echo "export HOME=$HOMES/$SLURMD_NODENAME"
"""


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=SEARCHED)]


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up; `environment` lets Slurm's commands find it."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str, timeout: float = 90, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command, srun for example, and return what it did."""
        environment = self.environment | variables
        return subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=patience(timeout),
            check=False,
        )

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in self.folder.glob("*.log"))


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and end all of it with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="rc-slurm-", ignore_cleanup_errors=True) as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        munge, configuration = _write(folder), folder / "slurm.conf"
        started = Cluster(folder, _environment(configuration))
        stack.callback(_end_steps, folder)
        _daemon(stack, folder, munge)
        _wait(lambda: (folder / "munge/socket").exists(), "munged listens", started)
        _daemon(stack, folder, ["slurmctld", "-D", "-i", "-f", str(configuration)])
        for node in NODES:
            _daemon(stack, folder, ["slurmd", "-D", "-N", node, "-f", str(configuration)])
        _wait(lambda: _idle(started), "both nodes are idle", started)
        yield started


def _write(folder: Path) -> list[str]:
    host = socket.gethostname().split(".")[0]
    return prepare(folder, f"{host}(127.0.0.1)", dict.fromkeys(NODES, f"{host} NodeAddr=127.0.0.1"))


def prepare(folder: Path, controller: str, nodes: Mapping[str, str]) -> list[str]:
    """Write slurm.conf and a key into the folder, and return the command that starts munged.

    Args:
        folder: of the cluster.
        controller: host and, in brackets, address of slurmctld.
        nodes: by name the host of each, and what else its line shall have.
    """
    for name in "munge", "state", *(f"spool-{node}" for node in nodes):
        (folder / name).mkdir(mode=0o700)
    lines = "\n".join(
        f"NodeName={node} NodeHostname={host} Port={free_port()} CPUs=8 State=UNKNOWN" for node, host in nodes.items()
    )
    user, names = pwd.getpwuid(os.getuid()).pw_name, ",".join(nodes)
    port = free_port()
    text = CONFIGURATION.format(host=controller, user=user, folder=folder, controller=port, nodes=lines, names=names)
    (folder / "slurm.conf").write_text(text)
    (folder / "prolog").write_text(PROLOG)
    (folder / "prolog").chmod(0o755)
    return _munge(folder)


def _munge(folder: Path) -> list[str]:
    own = folder / "munge"
    (own / "key").write_bytes(secrets.token_bytes(128))
    (own / "key").chmod(0o600)
    files = {"key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed", "socket": "socket"}
    # --force: it would have the directory of its socket open to all, which nobody else here needs.
    return ["munged", "--foreground", "--force", *(f"--{option}={own / file}" for option, file in files.items())]


def _environment(configuration: Path) -> dict[str, str]:
    foreign = ("SLURM", "RINGCAST_", "OMPI_", "PMI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"SLURM_CONF": str(configuration), "PATH": SEARCHED}


def _daemon(stack: contextlib.ExitStack, folder: Path, command: Sequence[str]) -> None:
    program = shutil.which(command[0], path=SEARCHED)
    assert program is not None
    with open(folder / f"{command[0]}-{len(list(folder.glob('*.out')))}.out", "wb") as output:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=_environment(folder / "slurm.conf"),
        )
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(patience(10))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_steps(folder: Path) -> None:
    """Kill what the daemons have left: slurmstepd and its tasks have sessions of their own."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("SLURM_CONF") == str(folder / "slurm.conf"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)


def _idle(started: Cluster) -> bool:
    states = started.run("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()
    return states == ["idle"] * len(NODES)


def _wait(condition: Callable[[], bool], what: str, started: Cluster) -> None:
    deadline = time.monotonic() + patience(UP)
    while not condition():
        assert time.monotonic() < deadline, f"not within {UP:g} s: {what}\n{started.logs()}"
        time.sleep(0.05)

"""The libraries that ringcast is compared with: what installs them, and what starts their ranks on emulated hosts.

Each lives in a virtual environment of its own, in the user's cache. It is made when it is first asked for, and stays as
it is, with the versions of that day, until its folder is deleted. Which build of a version it gets is for pip and the
index to say: torch, which has Gloo, can be one of several gigabytes with libraries for GPUs, which are not used here.

Ranks get an environment that has nothing of the user's settings in it. All go over TCP and nothing else, and those that
wait by polling are told to give way to others, as several hosts share a processor here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench import systems
from ringcast.errors import RingcastError

INSTALL_TIME = 1800.0  # seconds for pip to fetch and install a peer
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PeerMissing(RingcastError):
    """A peer is not installed and cannot be."""


@dataclass(frozen=True, slots=True)
class Start:
    """The place where a peer is to run.

    Attributes:
        venv: the peer's virtual environment.
        hosts: names of the hosts; rank i is to run on host i.
        agent: a program to be called in place of ssh.
        worker: the command of a rank.
    """

    venv: Path
    hosts: Sequence[str]
    agent: Path
    worker: Sequence[str]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, in the words of pip; how its ranks are started; and what its environment must say.

    Attributes:
        requirements: what pip installs.
        script: which of `ringcast.commands.bench.systems` makes it a system under test.
        mpirun: the command that starts all ranks, from the first host; None: each rank is started by itself.
        settings: variables.
        size: what is to be said of its size before pip begins; "": nothing.
    """

    requirements: tuple[str, ...]
    script: str
    mpirun: Callable[[Start], list[str]] | None
    settings: Mapping[str, str]
    size: str = ""


def openmpi(start: Start) -> list[str]:
    """Return the command line of Open MPI 5: PRRTE starts a daemon on each host but the first by the agent."""
    return [
        str(start.venv / "bin/mpirun"),
        *("-n", str(len(start.hosts)), "--host", ",".join(f"{host}:1" for host in start.hosts)),
        *("--map-by", "ppr:1:node", "--bind-to", "none"),  # else every host binds its rank to the first processor
        *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "mpi_yield_when_idle", "1"),
        *("--prtemca", "plm_ssh_agent", str(start.agent), "--prtemca", "plm_ssh_no_tree_spawn", "1"),
        *start.worker,
    ]


def mpich(start: Start) -> list[str]:
    """Return the command line of MPICH's Hydra: a proxy on each host but the first by the agent."""
    return [
        str(start.venv / "bin/mpiexec"),
        *("-n", str(len(start.hosts)), "-hosts", ",".join(start.hosts), "-ppn", "1"),
        *("-launcher", "ssh", "-launcher-exec", str(start.agent), "-bind-to", "none"),
        *start.worker,
    ]


def impi(start: Start) -> list[str]:
    """Return the command line of Intel MPI's Hydra: a proxy on each host but the first by the agent."""
    return [
        str(start.venv / "bin/mpiexec.hydra"),
        *("-n", str(len(start.hosts)), "-hosts", ",".join(start.hosts), "-ppn", "1"),
        *("-bootstrap", "ssh", "-bootstrap-exec", str(start.agent)),
        *start.worker,
    ]


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "openmpi": Peer(
            ("mpi4py", "openmpi", "numpy"),
            "mpi.py",
            openmpi,
            {
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_ALLOW_RUN_AS_ROOT": "1",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
        ),
        "mpich": Peer(
            ("mpi4py", "mpich", "numpy"),
            "mpi.py",
            mpich,
            {
                "MPIR_CVAR_CH4_NETMOD": "ofi",  # not ucx, which was slower for large data
                "FI_PROVIDER": "tcp",
                "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
                "HWLOC_XMLFILE": "/dev/shm/none",  # else Hydra has one in /tmp, which stays there when it is killed
                "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # nanosleep; since Linux 6.6 sched_yield hardly gives way
            },
        ),
        "impi": Peer(
            ("mpi4py", "impi-rt", "numpy"),
            "mpi.py",
            impi,
            {
                "I_MPI_FABRICS": "ofi",  # not shm:ofi
                "I_MPI_OFI_PROVIDER": "tcp",
                "I_MPI_PIN": "0",
                "I_MPI_WAIT_MODE": "1",  # in the kernel; polling took up to ten times as long for small data
                "I_MPI_THREAD_YIELD": "3",  # and where it polls: usleep
            },
        ),
        "gloo": Peer(
            ("numpy", "torch==2.13.0"),
            "gloo.py",
            None,
            {
                "GLOO_SOCKET_IFNAME": "e0",
                "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",  # no warnings that addresses have no names
            },
            size="1 GB, or several GB if pip gets a build of torch with libraries for GPUs",
        ),
    }
)


def worker(name: str, venv: Path, socket: Path) -> list[str]:
    """Return the command of a rank that takes its orders from the Unix socket at `socket`."""
    script = Path(systems.__file__).with_name(PEERS[name].script)
    return [str(venv / "bin/python"), str(script), name, str(socket)]


def environment(name: str, venv: Path) -> dict[str, str]:
    """Return the whole environment of a peer's programs."""
    # Every host has a /dev/shm of its own, which vanishes with it. All other files are the machine's, and those that
    # libraries name after process numbers would collide, as each host counts its own.
    places = {"PATH": f"{venv / 'bin'}:{SYSTEM_PATH}", "HOME": str(Path.home()), "TMPDIR": "/dev/shm"}
    return {**places, **PEERS[name].settings}


def of_torch(rank: int, size: int, address: str, port: int) -> dict[str, str]:
    """Return the variables by which torch.distributed finds its ranks; rank 0 listens at address and port."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(port)}


def cache() -> Path:
    """Return the directory of the peers' virtual environments."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringcast/peers"


def install(name: str, folder: Path | None = None) -> Path:
    """Return the virtual environment of a peer below `folder` (default: `cache()`); made if it is not there.

    That takes some minutes and 50 MB to 1 GB of disk, for gloo several GB where pip gets torch with libraries for GPUs.
    Standard error says so before. What is there stays as it is until its folder is deleted.

    Raises:
        PeerMissing: it is not there and cannot be made; says why.
    """
    venv = (folder or cache()) / name
    requirements = " ".join(PEERS[name].requirements)
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        with open(venv.with_name(f"{name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds it installed
            complete = venv / "complete"  # written last
            if not complete.exists() or complete.read_text() != requirements:
                print(f"ringcast bench: {_announcement(name, venv)}", file=sys.stderr, flush=True)
                _make(venv, PEERS[name].requirements)
                complete.write_text(requirements)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerMissing(f"not installed: {_reason(error)}") from None
    return venv


def _announcement(name: str, venv: Path) -> str:
    peer = PEERS[name]
    size = f" ({peer.size})" if peer.size else ""
    return f"pip install {' '.join(peer.requirements)}{size}, into {venv}, where it stays until you delete that folder"


def _make(venv: Path, requirements: Sequence[str]) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    for command in (
        [sys.executable, "-P", "-m", "venv", str(venv)],
        [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", *requirements],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIME)


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """Return the last thing that a command said which failed, or else the error itself."""
    said = error.stderr or error.stdout if isinstance(error, subprocess.CalledProcessError) else None  # venv: stdout
    lines = [line for line in (said or "").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else str(error))

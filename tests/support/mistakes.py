"""The table of mistakes that people make, and what they see then: `tests/golden/mistakes.txt`.

`python -m support.mistakes` (in `tests/`) writes that file again. What differs from run to run is left out of it: pids,
names, paths; algorithms, with their rounds, which follow from the number of processors; and, of the mistakes that
several ranks notice at the same time, by whom they were noticed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ringcast.monitoring import jobs
from support.patience import patience
from support.places import GOLDEN

FILE = GOLDEN / "mistakes.txt"
LIMIT = 240  # seconds that a job may take on a busy machine
SIZES = (3, 16)

# A launcher that leaves all ranks the time to say what they have to say, however busy the machine is.
_LAUNCH = """
from functools import partial
from ringcast_launcher import cli
from ringcast_launcher.output import held_errors
from ringcast_launcher.run import loop
held_errors.PATIENCE = 200
loop.Policy = partial(loop.Policy, settle=100, grace=100)
cli.main()
"""
_COMMANDS = {"ringcast-launch": ["-c", _LAUNCH], "ringcast": ["-m", "ringcast"]}
_HEAD = "import numpy as np\nimport ringcast\n"
_INIT = "comm = ringcast.init()\n"


@dataclass(frozen=True)
class Mistake:
    """A program with a mistake, or a command line with one."""

    name: str
    program: str = ""
    typed: str = "ringcast-launch -n {n} prog.py"
    init: bool = True
    racing: bool = False  # which ranks notice it is chance

    @property
    def sizes(self) -> tuple[int, ...]:
        return SIZES if "{n}" in self.typed else (0,)

    @property
    def source(self) -> str:
        return _HEAD + (_INIT if self.init else "") + self.program + "\n"


MISTAKES = (
    # what cannot travel, or not together
    Mistake("an array of objects", "comm.allreduce(np.array([1, None], dtype=object), ringcast.MAX)", racing=True),
    Mistake("an array of StringDType", 'comm.allgather(np.array(["a", "bc"], dtype=np.dtypes.StringDType()))'),
    Mistake("a record array in a sum", 'comm.allreduce(np.rec.array([(1, 2.0)], names="a,b"))', racing=True),
    Mistake("a masked array", "comm.allreduce(np.ma.array([1.0, 2.0], mask=[0, 1]))"),
    Mistake("a Python int and a numpy int", "comm.allreduce(1 if comm.rank == 0 else np.int64(1))", racing=True),
    Mistake("text of different widths", 'comm.allgather(np.array(["a" * (1 + comm.rank)]))', racing=True),
    Mistake(
        "datetimes in different units",
        'comm.allgather(np.array([1], dtype="M8[s]" if comm.rank == 0 else "M8[ms]"))',
        racing=True,
    ),
    # arguments
    Mistake("gatherv whose counts are not the rows", "comm.gatherv(np.ones(2), counts=[1] * comm.size)"),
    Mistake("scatter of 10 rows to 3 ranks", "comm.scatter(np.arange(10), root=0)"),
    Mistake("a root that does not exist", "comm.bcast(np.ones(3), root=comm.size)"),
    Mistake("a call of the module", "ringcast.allreduce(1)"),
    Mistake("a communicator by its class", "ringcast.Communicator()", init=False),
    # ranks that do not do the same
    Mistake("another root in the last call", "comm.bcast(np.ones(3), root=comm.rank)", racing=True),
    Mistake("different roots", "comm.reduce(np.ones(3), root=comm.rank % 2); comm.barrier()", racing=True),
    Mistake("different collectives", "comm.barrier() if comm.rank == 1 else comm.allreduce(np.ones(3))", racing=True),
    Mistake("different types", "comm.allreduce(np.ones(3, 'f4' if comm.rank == 1 else 'f8'))", racing=True),
    Mistake("different shapes", "comm.allreduce(np.ones(4 if comm.rank == 1 else 3))", racing=True),
    Mistake("a call that one rank leaves out", "if comm.rank != 1:\n    comm.barrier()", racing=True),
    Mistake("all ranks receive first", "comm.recv((comm.rank + 1) % comm.size)", racing=True),
    # ends of ranks
    Mistake("an exception on one rank", 'if comm.rank == 1:\n    raise ValueError("no data")\ncomm.barrier()'),
    Mistake("an exception on all ranks", 'raise ValueError("no data")'),
    Mistake("an exception before init", 'raise ValueError("no data")', init=False),
    Mistake("sys.exit(3) on one rank", "import sys\nif comm.rank == 1:\n    sys.exit(3)\ncomm.barrier()"),
    Mistake("a killed rank", "import os\nif comm.rank == 1:\n    os.kill(os.getpid(), 9)\ncomm.barrier()"),
    Mistake("a syntax error", "comm.barrier(", init=False),
    Mistake("a module that does not exist", "import nonsuch", init=False),
    # command lines
    Mistake("no number of ranks", typed="ringcast-launch prog.py"),
    Mistake("options after the program", typed="ringcast-launch prog.py -n 4"),
    Mistake("an option with a letter less", typed="ringcast-launch --timout 3 -n 4 prog.py"),
    Mistake("an option that does not exist", typed="ringcast-launch -c 4 prog.py"),
    Mistake("a word for a number", typed="ringcast-launch -n four prog.py"),
    Mistake("no rank", typed="ringcast-launch -n 0 prog.py"),
    Mistake("more ranks than fit", typed="ringcast-launch -n 100000000 prog.py"),
    Mistake("more ranks than the machine can have", typed="ringcast-launch -n 900000 prog.py"),
    Mistake("nothing to run", typed="ringcast-launch -n 4"),
    Mistake("a script that does not exist", typed="ringcast-launch -n 4 porg.py"),
    Mistake("a program that does not exist", typed="ringcast-launch -n 4 nonsuch"),
    Mistake("ringcast run", typed="ringcast run prog.py"),
    Mistake("ringcast with a script", typed="ringcast prog.py"),
    Mistake("a command with letters exchanged", typed="ringcast expalin"),
    Mistake("a command that does not exist", typed="ringcast frobnicate"),
)


@dataclass(frozen=True)
class Seen:
    """The effects of one mistake."""

    typed: str
    lines: tuple[str, ...]
    code: int

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in (f"$ {self.typed}", *self.lines, f"exit code {self.code}"))


def make(mistake: Mistake, n: int) -> tuple[Seen, str]:
    """Make the mistake on n ranks; return what differs from run to run in no way, and all that was printed."""
    typed = mistake.typed.format(n=n)
    name, *arguments = typed.split()
    with tempfile.TemporaryDirectory(prefix="rc-", dir=jobs.bases()[0]) as folder:
        Path(folder, "prog.py").write_text(mistake.source)
        done = subprocess.run(
            [sys.executable, *_COMMANDS[name], *arguments],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(LIMIT),
            check=False,
        )
    text = _normal(done.stdout, folder)
    text = _settled(text) if mistake.racing else _of_cause(text)
    return Seen(typed, tuple(text.splitlines()), done.returncode), done.stdout


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGCAST_", "SLURM_", "PYTHON"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "TMPDIR": folder}


_NORMAL = (
    (r"pid \d+", "pid PID"),
    (r"^(?:\[[\d,-]+\] )? +[~^]+\n", ""),  # which part of a line is marked depends on Python's version
    (r'File ".*/ringcast/(\w+/)?(\w+.py)", line \d+', r'File "ringcast/\1\2", line N'),
    (r"\.\.\. \d+ frames? inside", "... N frames inside"),
    (r", rounds? \d+(?: to \d+)?(?: of \d+)?", ""),
    (r", waiting for ranks? [\d, ]+(?:and \d+ more)?(?=, at )", ""),
    (r"(?:, )?by \w+(?=\), )", ""),
    (r", algorithm \w+, nblocks \d+", ""),
    (r"\(algorithm \w+, nblocks \d+\)", ""),
    (r"can have: .* allows \d+ at most", "can have: LIMIT allows N at most"),
)


def _normal(text: str, folder: str) -> str:
    """Return the text without what differs from machine to machine, and from run to run."""
    text = text.replace(f"{folder}/", "").replace(folder, "FOLDER").replace(sys.executable, "python")
    text = text.replace(f"({socket.gethostname()}, ", "(HOST, ")
    for pattern, kept in _NORMAL:
        text = re.sub(pattern, kept, text, flags=re.MULTILINE)
    return text


_RECORD = r"^ringcast-launch: ranks? [\d, ]+(?:and \d+ more)?: "  # of a rank, or of several
_RACING = (
    (rf"{_RECORD}.*\n", ""),
    (r"^\[[\d,-]+\] stopped at .*\n", ""),
    (r"^\[[\d,-]+\] ", ""),
    (r"rank \d+", "rank R"),
    (r"(?<=: )rank R: ", ""),  # is not there where several ranks say the same
    (r"peer rank R \(HOST, pid PID\)", "peer rank R"),
    (r"in \w+ #\d+", "in CALL"),
    # What differs is told only if the other call is known by then; the last line may end in the middle of all that.
    (r": (?:[\w ]+ differs?\b|mine\b).*", ": mine is CALL, theirs is CALL"),
)  # fmt: skip


def _settled(text: str) -> str:
    """Return the text without who noticed the mistake, in which of the calls that do not match, and after what."""
    for pattern, kept in _RACING:
        text = re.sub(pattern, kept, text, flags=re.MULTILINE)
    return text


def _of_cause(text: str) -> str:
    """Return the text with the flight record of the rank that is the cause only: how far others came is chance."""
    cause = re.search(r"^ringcast-launch: rank (\d+) \(", text, flags=re.MULTILINE)
    kept = re.compile(rf"ringcast-launch: ranks? (?:[\d, ]+, )?{cause[1] if cause else ''}(?:[, ][^:]*)?: ")
    return "".join(line for line in text.splitlines(keepends=True) if not re.match(_RECORD, line) or kept.match(line))


def parts() -> dict[str, str]:
    """Return the parts of the file, by the names of the mistakes."""
    return {part.partition("\n")[0]: part for part in FILE.read_text(encoding="utf-8").split("=== ")[1:]}


def part(mistake: Mistake) -> str:
    """Return the part of the file on a mistake, without what it leads to."""
    program = "".join(f"    {line}\n" for line in mistake.source.splitlines()) if mistake.program else ""
    return f"{mistake.name}\n{program}"


def write() -> None:
    """Make all mistakes, and write the file."""
    made = []
    for mistake in MISTAKES:
        print(mistake.name, file=sys.stderr)
        made.append(f"=== {part(mistake)}" + "".join(str(make(mistake, n)[0]) for n in mistake.sizes))
    FILE.write_text("\n".join(made), encoding="utf-8")


if __name__ == "__main__":
    write()

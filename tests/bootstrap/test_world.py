"""init and finalize in launched workers: every algorithm on real processes, and environments that cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from traceback import FrameSummary

import numpy as np
import pytest

import ringcast
from ringcast.bootstrap import world
from ringcast.config import worker
from ringcast.errors import blames
from ringcast.monitoring.progress import progress_snapshot
from ringcast.wire.error_text import of_the_program
from support.patience import patience

EVERY_ALGORITHM = """
import functools, operator
import numpy as np, ringcast
from ringcast.algorithms import ALGORITHMS, Params

comm = ringcast.init()
p, r, root = comm.size, comm.rank, comm.size - 1
counts = [3 * i % 5 for i in range(p)]
vectors = [np.arange(40) * (i + 1) for i in range(p)]
total, whole = sum(vectors), np.concatenate([v[:n] for v, n in zip(vectors, counts)])
bounds = np.cumsum([0, *counts])
wide = [np.arange(bounds[-1]) + i for i in range(p)]
op = functools.partial(operator.add)  # has no name of its own
done = []
for name in ALGORITHMS["bcast"]:
    assert (comm.bcast(vectors[r] if r == root else None, root, algorithm=name) == vectors[root]).all()
    done.append(name)
for name in ALGORITHMS["reduce"]:
    result = comm.reduce(vectors[r], root=root, algorithm=name)
    assert result is None if r != root else (result == total).all()
    done.append(name)
for name in ALGORITHMS["allreduce"]:
    assert (comm.allreduce(vectors[r], algorithm=name) == total).all()
    done.append(name)
for name in ALGORITHMS["allgather"]:
    assert (comm.allgather(vectors[r], algorithm=name) == vectors).all()
    done.append(name)
for name in ALGORITHMS["allgatherv"]:
    assert (comm.allgatherv(vectors[r][: counts[r]], algorithm=name) == whole).all()
    done.append(name)
for name in ALGORITHMS["reduce_scatter"]:
    part = comm.reduce_scatter(wide[r], counts=counts, algorithm=name)
    assert (part == sum(wide)[bounds[r] : bounds[r + 1]]).all()
    done.append(name)
for name in ALGORITHMS["gather"]:
    result = comm.gather(vectors[r], root, algorithm=name)
    assert result is None if r != root else (result == vectors).all()
    done.append(name)
for name in ALGORITHMS["scatter"]:
    assert (comm.scatter(np.stack(vectors) if r == root else None, root, algorithm=name) == vectors[r]).all()
    done.append(name)
for name in ALGORITHMS["scan"]:
    assert (comm.scan(vectors[r], algorithm=name) == sum(vectors[: r + 1])).all()
    done.append(name)
for name in ALGORITHMS["exscan"]:
    result = comm.exscan(vectors[r], algorithm=name)
    assert result is None if r == 0 else (result == sum(vectors[:r])).all()
    done.append(name)
for name in ALGORITHMS["merge_sorted"]:
    assert (comm.merge_sorted(vectors[r][: counts[r]], algorithm=name) == np.sort(whole)).all()
    done.append(name)
for name, entry in ALGORITHMS["alltoall"].items():
    if not entry.fits(Params(p)):
        table = np.arange(3 * p).reshape(p, 3)
        assert (comm.alltoall(table + 100 * r, algorithm=name) == [table[r] + 100 * i for i in range(p)]).all()
    done.append(name)
for name, entry in ALGORITHMS["alltoallv"].items():
    if not entry.fits(Params(p)):
        got = comm.alltoallv(np.repeat(np.arange(p), counts) + 100 * r, counts, algorithm=name)
        assert (got == np.repeat(np.arange(p) * 100 + r, counts[r])).all()
    done.append(name)
for name, entry in ALGORITHMS["shift"].items():
    if not entry.fits(Params(p)):
        assert (comm.shift(vectors[r], 2 - p, algorithm=name) == vectors[(r - 2) % p]).all()
    done.append(name)
for name in ALGORITHMS["barrier"]:
    comm.barrier()
    done.append(name)
assert (comm.allreduce(vectors[r], op) == total).all()
assert comm.allreduce(str(r), op) == "".join(map(str, range(p)))
assert len(done) == sum(map(len, ALGORITHMS.values())), done
"""


@pytest.mark.live
@pytest.mark.parametrize(("n", "transport"), [(4, "shm"), (2, "ipc"), (5, "ipc"), (3, "tcp")])
def test_every_algorithm_on_real_processes(tmp_path: Path, n: int, transport: str) -> None:
    (tmp_path / "program.py").write_text(EVERY_ALGORITHM)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(n), "--transport", transport]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=patience(60)
    )
    assert done.returncode == 0, done.stderr


def init(**environment: str) -> str:
    """Return the last line on standard error of a worker with this environment that calls init."""
    command = [sys.executable, "-c", "import ringcast; ringcast.init()"]
    variables = {**os.environ, "RINGCAST_SIZE": "2", "RINGCAST_RANK": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), env=variables)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_sockets_are_refused_where_others_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    words = "sockets need a directory that is yours alone"
    assert words in init(RINGCAST_CONTROL=f"ipc://{tmp_path}/control")
    assert "No such file" in init(RINGCAST_CONTROL=f"ipc://{tmp_path}/none/control")


@pytest.mark.live
def test_an_environment_that_cannot_work_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    key = "RINGCAST_KEY is not a key"
    assert key in init(RINGCAST_CONTROL="tcp://127.0.0.1:1", RINGCAST_KEY="'" * 40)
    mixed = {"RINGCAST_CONTROL": "tcp://127.0.0.1:1", "RINGCAST_KEY": "x" * 40, "RINGCAST_TRANSPORT": "ipc"}
    assert "RINGCAST_DIR: with RINGCAST_TRANSPORT=ipc" in init(**mixed)
    long = tmp_path / ("x" * 120)
    long.mkdir(mode=0o700)
    assert "rank 1 cannot listen at ipc://" in init(RINGCAST_CONTROL=f"ipc://{long}/control")


def test_init_returns_the_same_world_until_it_is_finalized() -> None:
    with ringcast.init() as comm:
        assert ringcast.init() is comm
        assert (comm.rank, comm.size) == (0, 1)
    assert comm.closed
    with pytest.raises(ringcast.UsageError, match="finalized"):
        comm.barrier()
    again = ringcast.init()
    assert again is not comm
    ringcast.finalize()
    ringcast.finalize()
    assert again.closed


def test_errors_name_those_they_blame() -> None:
    assert blames(ringcast.PeerFailed(0, 3, "gone")) == (3,)
    assert blames(ringcast.Revoked(0, "why", by=2)) == (2,)
    assert blames(ringcast.Revoked(0, "why")) == ()
    assert blames(ValueError()) == ()


def test_who_is_stopped_says_so_in_one_line() -> None:
    error = ringcast.PeerFailed(0, 3, "ValueError: ?", remote_traceback="Traceback\n  a line\nValueError: ?")
    assert world._in_one_line(error, None) == "stopped at ?: PeerFailed: rank 0: peer rank 3 failed: ValueError: ?"


def test_every_public_name_is_there() -> None:
    for name in ringcast.__all__:
        assert getattr(ringcast, name).__module__.startswith("ringcast")
    with pytest.raises(AttributeError, match="no attribute 'Broadcast'"):
        ringcast.Broadcast  # noqa: B018
    assert set(ringcast.__all__) <= set(dir(ringcast))


@pytest.mark.parametrize("package", ["schedules", "algorithms", "analysis", "transports"])
def test_every_name_of_a_public_package_can_be_imported(package: str) -> None:
    """In a process that has imported nothing else: a module that has moved would be missed."""
    command = [sys.executable, "-c", f"from ringcast.{package} import *"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, done.stderr


def test_who_opens_the_terminal_has_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    settings = worker.WorkerConfig(
        0, 2, f"ipc://{tmp_path}/control", directory=str(tmp_path), terminal=os.ttyname(slave)
    )
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert not progress_snapshot(str(tmp_path), []).drawing
    screen = world.terminal()
    assert screen is not None
    screen.close()
    assert progress_snapshot(str(tmp_path), []).drawing
    os.close(master)
    os.close(slave)


def frames(*files: str) -> list[FrameSummary]:
    return [FrameSummary(file, line, "f") for line, file in enumerate(files, 1)]


OURS, STANDARD, INSTALLED = ringcast.__file__, threading.__file__, np.__file__


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        (("prog.py", OURS), ["prog.py"]),
        (("prog.py", OURS, STANDARD), ["prog.py"]),
        (("prog.py", OURS, STANDARD, STANDARD, OURS, STANDARD), ["prog.py"]),
        (("prog.py", STANDARD), ["prog.py", STANDARD]),  # which the program has called itself
        (("prog.py", OURS, STANDARD, "prog.py", STANDARD), ["prog.py", "prog.py", STANDARD]),  # an operator
        (("prog.py", OURS, INSTALLED), ["prog.py", INSTALLED]),
        ((OURS, STANDARD, "prog.py", OURS), ["prog.py"]),
        ((OURS,), []),
    ],
)
def test_the_place_of_a_stop_is_above_ringcast_and_all_that_it_calls(files: tuple[str, ...], kept: list[str]) -> None:
    assert [frame.filename for frame in of_the_program(frames(*files))] == kept

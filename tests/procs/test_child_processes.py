"""Processes that a rank starts with multiprocessing: they come to `init` once, with one error, and not for ever."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ringcast.control import new_key
from ringcast.procs.child_processes import GUARD, RankProcess, parse
from support.patience import patience
from support.places import python

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")} | dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
TRANSPORTS = ["shm", "ipc", "sockets", "tcp"]
LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
COUNT = """
import os, sys
with open({file!r}, "a") as file:
    print(os.getpid(), file=file)
"""
POOL = """
import multiprocessing
import ringcast
comm = ringcast.init()
{guard}pool = multiprocessing.get_context({method!r}).Pool(2)
{guard}print(sum(pool.map(abs, range(-3, 0))))
{guard}pool.terminate()
{guard}comm.barrier()
"""


def launched(p: int, program: Path, *options: str, env: dict[str, str] = ENVIRONMENT) -> tuple[int, str, list[str]]:
    command = [*LAUNCH, "-n", str(p), *options, str(program)]
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as short:  # for multiprocessing's own sockets
        env = {**env, "TMPDIR": short}
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(100), env=env, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


def program(folder: Path, text: str) -> tuple[Path, Path]:
    """Return a program, and the file in which each process that runs it leaves a line."""
    file, count = folder / "program.py", folder / "count"
    file.write_text(COUNT.format(file=str(count)) + text)
    return file, count


@pytest.mark.live
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_init_at_the_top_level_is_one_error(transport: str, p: int, method: str, tmp_path: Path) -> None:
    file, count = program(tmp_path, POOL.format(method=method, guard=""))
    code, out, errors = launched(p, file, "--transport", transport)
    assert (code, out) == (1, "")
    assert re.search(rf"^ringcast-launch: rank \d+ \(.*\) failed: UsageError: .*{re.escape(GUARD)}", errors[-1])
    assert f"{file}:8 calls ringcast.init in process" in errors[-1]
    assert "".join(errors).count("UsageError: ") == 1  # beside it the recorder's line, which says that it was raised
    assert not any("Traceback" in line for line in errors), errors
    assert len(count.read_text().split()) <= p + 2 * p  # the ranks, and once what their pools have


EXECUTOR = """
import concurrent.futures, multiprocessing
import ringcast
comm = ringcast.init()
with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
    print(list(pool.map(abs, range(-3, 0))))
"""


@pytest.mark.live
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_executor_with_init_at_the_top_level_is_one_error(transport: str, tmp_path: Path) -> None:
    file, _ = program(tmp_path, EXECUTOR)
    code, out, errors = launched(2, file, "--transport", transport)
    assert (code, out) == (1, "")
    assert GUARD in errors[-1]


@pytest.mark.live
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_with_the_guard_pools_work(transport: str, method: str, tmp_path: Path) -> None:
    text = POOL.replace("comm = ", "if __name__ == '__main__':\n    comm = ").format(method=method, guard="    ")
    file, _ = program(tmp_path, text)
    assert launched(2, file, "--transport", transport) == (0, "6\n6\n", [])


@pytest.mark.live
def test_forked_pools_that_do_not_come_to_init_work(tmp_path: Path) -> None:
    file, _ = program(tmp_path, POOL.format(method="fork", guard=""))
    assert launched(3, file) == (0, "6\n6\n6\n", [])


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets"])
def test_a_child_shows_no_bar_of_progress_and_no_error(transport: str, tmp_path: Path) -> None:
    """A child has the settings of its rank, but for the key, which the rank has removed from its environment."""
    text = """
import multiprocessing
import ringcast
def count(n):
    return sum(ringcast.progress(range(n)))
if __name__ == "__main__":
    comm = ringcast.init()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(count, [4]))
"""
    file, _ = program(tmp_path, text)
    assert launched(2, file, "--transport", transport) == (0, "[6]\n[6]\n", [])


@pytest.mark.live
@pytest.mark.parametrize("p", [1, 3])
def test_a_forked_pool_that_comes_to_init_is_one_error(p: int, tmp_path: Path) -> None:
    text = """
import multiprocessing
import ringcast
comm = ringcast.init()
def begin():
    print(file=open("FILE", "a"))
    ringcast.init()
multiprocessing.get_context("fork").Pool(2, begin).map(abs, [1, 2])
"""
    begun = tmp_path / "begun"
    file, _ = program(tmp_path, text.replace("FILE", str(begun)))
    code, out, errors = launched(p, file)
    assert (code, out) == (1, "")
    assert GUARD in errors[-1]
    assert not any("Traceback" in line for line in errors), errors
    assert len(begun.read_text()) <= 2 * p


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets"])
def test_without_a_launcher_too(transport: str, tmp_path: Path) -> None:
    file, count = program(tmp_path, POOL.format(method="spawn", guard=""))
    settings = {"RINGCAST_SIZE": "2", "RINGCAST_CONTROL": f"ipc://{tmp_path}/control", "RINGCAST_DIR": str(tmp_path)}
    settings |= {"RINGCAST_TRANSPORT": transport, "RINGCAST_KEY": new_key()}
    settings["RINGCAST_NONCE"] = str(secrets.randbits(64))
    ranks = [
        subprocess.Popen(
            [sys.executable, str(file)],
            env={**ENVIRONMENT, **settings, "RINGCAST_RANK": str(rank)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=patience(100))[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], said
    for errors in said:
        assert errors.startswith("ringcast.UsageError: rank ")
        assert (errors.count("UsageError"), errors.count("Traceback")) == (1, 0)
        assert GUARD in errors.splitlines()[0]
    assert len(count.read_text().split()) <= 2 + 2 * 2


@pytest.mark.live
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_another_program_that_a_rank_starts_gets_the_error_and_the_rank_goes_on(transport: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("import ringcast\nringcast.init()\n")
    text = f"""
import subprocess
import ringcast
comm = ringcast.init()
done = subprocess.run([sys.executable, {str(other)!r}], stderr=subprocess.PIPE, text=True)
print(done.returncode, done.stderr.splitlines()[-1])
comm.barrier()
"""
    file, _ = program(tmp_path, text)
    code, out, errors = launched(2, file, "--transport", transport)
    assert (code, errors) == (0, [])
    assert all(
        re.match(r"1 ringcast.errors.UsageError: rank \d: .*use ringcast-launch", line) for line in out.split("\n")[:-1]
    )
    assert out.count("\n") == 2


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets"])
def test_a_rank_may_start_a_job_of_its_own_and_replace_itself_before_init(transport: str, tmp_path: Path) -> None:
    text = """
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
import subprocess
import ringcast
if __name__ == "__main__":
    comm = ringcast.init()
    inner = "import ringcast; comm = ringcast.init(); print(comm.allreduce(1))"
    command = [sys.executable, "-m", "ringcast_launcher", "--output", "none", "-n", "2", "python", "-c", inner]
    subprocess.run(command, check=True)
    print(ringcast.run(lambda comm: comm.size, 2))
    comm.barrier()
"""
    file, _ = program(tmp_path, text)
    code, out, errors = launched(2, file, "--transport", transport)
    assert (code, errors) == (0, [])
    assert sorted(out.splitlines()) == ["2"] * 4 + ["[2, 2]"] * 2


@pytest.mark.live
def test_a_worker_that_is_a_script_of_a_shell(tmp_path: Path) -> None:
    """Each process that comes to `init` first is the rank, whoever its parent is."""
    file, _ = program(tmp_path, "import ringcast\nprint(ringcast.init().allreduce(1))\n")
    script = tmp_path / "wrapper"
    script.write_text(f"#!/bin/sh\n{python(file)}\nexit $?\n")
    script.chmod(0o755)
    assert launched(2, script) == (0, "2\n2\n", [])


@pytest.mark.parametrize("text", ["", "1", "a:b:c:d:e", "1:2:3:4:5:6"])
def test_a_mark_that_makes_no_sense_is_none(text: str) -> None:
    assert parse(text) is None
    assert parse(str(RankProcess(1 << 63, 2, 3, 4, 5))) == RankProcess(1 << 63, 2, 3, 4, 5)

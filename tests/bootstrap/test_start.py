"""The start of a rank imports no module that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ringcast
import ringcast_launcher
from support.patience import patience

UNWANTED = ["asyncio", "importlib.metadata", "psutil", "rich", "cloudpickle", "multiprocessing", "subprocess"]
UNWANTED += ["pathlib", "shutil", "tempfile"]
UNWANTED += [f"ringcast.{name}" for name in ("control.server", "control.membership", "topology", "analysis", "mpi")]
UNWANTED += [f"ringcast.{name}" for name in ("bootstrap.in_process", "collectives.explain", "collectives.neighbors")]
NEEDS = {  # what a transport needs that others do not wait for
    "cryptography": {"sockets"},
    "hashlib": {"sockets", "tcp"},
    "ipaddress": {"ipc", "sockets", "tcp"},
    "ssl": {"sockets"},
    "ringcast.net.interfaces": {"sockets", "tcp"},
    "ringcast.control.link_watch": {"ipc", "sockets", "tcp"},
    "ringcast.net.zap": {"ipc", "tcp"},
}
FOR_CALLS = ["ringcast.algorithms.registry", "ringcast.algorithms.cost", "ringcast.schedules.circulant"]
FOR_CALLS += [f"ringcast.collectives.{name}" for name in ("alltoall", "gather", "point_to_point", "reduce", "split")]
PROGRAM = """
import sys, ringcast
comm = ringcast.init()
print(*[name for name in {names} + {for_calls} if name in sys.modules])
comm.ibarrier().wait()
print(*[name for name in {names} + {for_others} if name in sys.modules])
"""


@pytest.mark.parametrize("transport", ["shm", "ipc", "sockets", "tcp"])
def test_a_rank_starts_without_modules_that_it_may_not_need(transport: str) -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", "--transport", transport, "--output", "none"]
    names = UNWANTED + [name for name, needed in NEEDS.items() if transport not in needed]
    others = [f"ringcast.collectives.{name}" for name in ("alltoall", "gather", "point_to_point", "split")]
    program = PROGRAM.format(names=names, for_calls=FOR_CALLS, for_others=others)
    done = subprocess.run([*command, "python", "-c", program], capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stdout) == (0, "\n" * 4), done.stderr


def test_the_watchdog_starts_with_little_of_the_standard_library() -> None:
    roots = [str(Path(package.__file__ or "").parents[1]) for package in (ringcast, ringcast_launcher)]
    program = "import sys; sys.path += sys.argv[1:]; import ringcast_launcher.system.watchdog as w; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", program, *roots]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=True)
    assert not {"typing", "re", "dataclasses", "inspect", "pathlib", "subprocess", "shutil"} & {*done.stdout.split()}


OF_OTHERS = {"asyncio", "hashlib", "secrets", "psutil", "rich", "numpy", "multiprocessing"}
OF_OTHERS |= {"ringcast.control.client", "ringcast.net.zap"}
OF_OTHERS |= {
    f"ringcast_launcher.hosts.{name}" for name in ("agent", "joined_node", "node_agent", "remote_host", "ssh")
}


def test_the_launcher_starts_without_modules_that_it_may_not_need() -> None:
    program = f"import sys, ringcast_launcher.cli; print(*{OF_OTHERS} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(60))
    assert done.stdout == "\n", done.stderr

"""A cluster in a real kernel: cells with classes, a failure and going on, an interrupt, output in its cell."""

from __future__ import annotations

import os
import queue
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import needs
from support.patience import patience

PATIENCE = 60.0  # seconds for a cell


@dataclass
class Cell:
    """The output of a cell: its two streams, its result, and the name and text of its error."""

    streams: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    result: str = ""
    error: str = ""
    traceback: str = ""

    def lines(self) -> list[str]:
        """Return the lines of standard output, sorted, as a notebook shows them: a carriage return begins one again."""
        return sorted(line.rpartition("\r")[2] for line in self.streams["stdout"].split("\n")[:-1])

    def take(self, message: dict[str, Any]) -> bool:
        """Take a message of the cell; return whether it was the last one."""
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                self.streams[content["name"]] += content["text"]
            case "execute_result":
                self.result = content["data"]["text/plain"]
            case "error":
                self.error = content["ename"]
                self.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            case "status":
                return bool(content["execution_state"] == "idle")
        return False


class Notebook:
    """A kernel, and the cells that are run in it one after the other."""

    def __init__(self) -> None:
        from jupyter_client.manager import KernelManager

        self.kernel = KernelManager()
        self.kernel.kernel_spec.argv[:] = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        # Where CI is set, no bar is drawn.
        environment = {n: value for n, value in os.environ.items() if not n.startswith("RINGCAST_") and n != "CI"}
        self.kernel.start_kernel(env={**environment, "NO_COLOR": "1"})
        self.client = self.kernel.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=patience(PATIENCE))

    def run(self, code: str, seen: Callable[[Cell], None] = lambda _: None) -> Cell:
        """Run a cell; `seen` is called after each message that it sends."""
        cell, number, until = Cell(), self.client.execute(code), time.monotonic() + patience(PATIENCE)
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell has not ended: {cell}") from None
            if message["parent_header"].get("msg_id") == number:
                if cell.take(message):
                    return cell
                seen(cell)

    def close(self) -> None:
        if not self.kernel.has_kernel:
            return
        self.client.stop_channels()
        self.kernel.shutdown_kernel()
        self.kernel.cleanup_resources()


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    for package in "jupyter_client", "ipykernel":
        needs.package(package)
    made = Notebook()
    yield made
    made.close()


@pytest.mark.filterwarnings("default")  # those of the notebook's libraries are not ours
def test_a_notebook_of_several_cells(notebook: Notebook) -> None:
    first = notebook.run("import os, ringcast\nranks = ringcast.cluster(2)\nranks.run(lambda comm: os.getpid())")
    assert first.error == "", first
    pids = [int(pid) for pid in first.result.strip("[]").split(",")]
    workers = [psutil.Process(pid) for pid in pids]

    cell = notebook.run("""
class Point:
    def __init__(self, x):
        self.x = x

def moved(point, by):
    return Point(point.x + by)

def work(comm, start):
    print(f"from {start.x}")
    point = comm.bcast(moved(start, 1) if comm.rank == 0 else None)
    assert isinstance(point, Point)
    return comm.sendrecv(moved(point, comm.rank), 1 - comm.rank, 1 - comm.rank)

[(type(p) is Point, p.x) for p in ranks.run(work, Point(10))]
""")
    assert (cell.error, cell.result) == ("", "[(True, 12), (True, 11)]"), cell
    assert cell.lines() == ["[0] from 10", "[1] from 10"]

    failed = notebook.run("ranks.run(lambda comm: comm.allreduce(1 // comm.rank))")
    assert failed.error == "RunFailed", failed
    assert failed.streams == {"stdout": "", "stderr": ""}, "the error is shown once, by the notebook"
    assert failed.traceback.count("ZeroDivisionError") <= 3  # in the remote traceback, and the first line about it
    assert notebook.run("ranks").result == "<Cluster: 2 ranks, processes, idle>"

    for turn in range(3):
        cell = notebook.run(f"ranks.run(lambda comm: print('turn', {turn}))[0]")
        assert cell.lines() == [f"[0] turn {turn}", f"[1] turn {turn}"]

    failed = notebook.run("ringcast.run(lambda comm: comm.allreduce(1 // comm.rank), 2)")
    assert failed.error == "RunFailed", failed
    shown = [line for line in failed.streams["stderr"].splitlines() if "share the cores" not in line]
    assert (failed.streams["stdout"], shown) == ("", []), "the error is shown once, by the notebook"
    assert "raised ZeroDivisionError before" in failed.traceback, "what is known of the ranks is a note of the error"

    sent = []

    def interrupt(cell: Cell) -> None:
        if len(cell.lines()) == 2 and not sent:
            sent.append(True)
            notebook.kernel.interrupt_kernel()

    cell = notebook.run(
        "def endless(comm):\n    print('endless', flush=True)\n    while True: pass\nranks.run(endless)", interrupt
    )
    assert cell.error == "KeyboardInterrupt", cell
    assert len(cell.traceback.splitlines()) <= 20, cell.traceback
    assert "4 ranks.run(endless)" in cell.traceback
    assert "BrokenOff" not in cell.traceback
    cell = notebook.run("ranks.run(lambda comm: (os.getpid(), comm.allreduce(1)))")
    assert cell.result == str([(pid, 2) for pid in pids]), cell

    notebook.close()
    _, alive = psutil.wait_procs(workers, timeout=patience(PATIENCE))
    assert alive == []


BARS = {
    "ringcast.progress": "import ringcast; bar = ringcast.progress(range(4))",
    "tqdm": "import tqdm; bar = tqdm.tqdm(range(4), disable=comm.rank != 1)",
    "rich": "from rich.progress import track; bar = track(range(4), disable=comm.rank != 1)",
    "carriage returns": r"bar = (print(f'{25 * i}%', end='\r', flush=True) for i in range(1, 5))",
    "an unfinished line": "bar = (print(25 * i, '%', end=' ', flush=True) for i in range(1, 5))",
}


# Each step waits until the notebook has shown as many messages; tqdm and rich draw ten times a second.
WORK = """
def work(comm):
    {bar}
    for step, _ in enumerate(bar, 1):
        time.sleep(0.2)
        while len(os.listdir({folder!r})) < step:
            time.sleep(0.01)
ranks.run(work)
"""


@pytest.mark.filterwarnings("default")  # those of the notebook's libraries are not ours
def test_progress_is_shown_while_a_function_runs_and_errors_name_cell_and_line(
    notebook: Notebook, tmp_path: Path
) -> None:
    needs.package("tqdm")
    assert notebook.run("import os, ringcast, time\nranks = ringcast.cluster(2)").error == ""
    for name, bar in BARS.items():
        folder = tmp_path / name
        folder.mkdir()
        shown: list[str] = []

        def seen(cell: Cell, folder: Path = folder, shown: list[str] = shown) -> None:
            text = "".join(cell.streams.values())
            if text and [text] != shown[-1:]:
                shown.append(text)
                (folder / str(len(shown))).touch()

        cell = notebook.run(WORK.format(bar=bar, folder=str(folder)), seen)
        assert cell.error == "", cell
        assert len(shown) >= 3, f"{name}: {shown}"
        assert "100" in shown[-1], f"{name}: {shown}"
        assert "100" not in shown[0], f"{name}: {shown}"

    failed = notebook.run("def share(comm):\n    parts = comm.rank\n    return 1 // parts\nranks.run(share)")
    assert 'File "Cell In[' in failed.traceback
    assert "line 3, in share\n    return 1 // parts" in failed.traceback

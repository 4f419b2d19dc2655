"""The processes that `.ci/beside-busy` starts beside a command end with it, for any end of the command."""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from support.fleets import until
from support.patience import patience
from support.places import ROOT

BUSY = str(ROOT / ".ci/beside-busy")


def test_the_exit_code_is_the_commands() -> None:
    assert subprocess.run([BUSY, "sh", "-c", "exit 3"], timeout=patience(60), check=False).returncode == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_busy_processes_end_with_the_script(number: signal.Signals) -> None:
    with subprocess.Popen([BUSY, "cat"], stdin=subprocess.PIPE) as script:
        until(lambda: len(_busy(script.pid)) == 2)
        busy = _busy(script.pid)
        script.send_signal(number)
    assert psutil.wait_procs(busy, timeout=patience(10))[1] == []


def _busy(script: int) -> list[psutil.Process]:
    """Return the busy processes of a script, without children that run no program yet."""
    return [child for child in psutil.Process(script).children() if "kill -0" in " ".join(child.cmdline())]

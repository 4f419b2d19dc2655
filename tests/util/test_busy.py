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
        until(lambda: len(psutil.Process(script.pid).children()) == 3)
        busy = [child for child in psutil.Process(script.pid).children() if "kill -0" in " ".join(child.cmdline())]
        assert len(busy) == 2
        script.send_signal(number)
    assert psutil.wait_procs(busy, timeout=patience(10))[1] == []

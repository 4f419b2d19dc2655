"""`ringcast cp URL` to this host, by real processes: what has come is kept, and nothing outlives a killed command."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleets import until, variables
from support.patience import patience
from support.store import Handler, Store, store

pytestmark = pytest.mark.live

DATA = random.Random(5).randbytes(8_000_000)
SOON = 10.0  # seconds, in which all processes end


@pytest.fixture
def served() -> Iterator[Store]:
    with store(DATA) as made:
        yield made


class Copy:
    """A copy of the store's file to a directory, and all processes that it has."""

    def __init__(self, served: Store, out: Path, *options: str) -> None:
        command = [sys.executable, "-m", "ringcast", "cp", *options, f"{served.root}/model.bin", f"localhost:{out}/"]
        self.name = f"{out} {os.urandom(8).hex()}"
        environment = {**os.environ, "no_proxy": "*", "RINGCAST_TEST_COPY": self.name}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def processes(self, word: str = "") -> list[int]:
        """Return the processes whose command has a word."""
        found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        mine = [pid for pid in found if variables(pid).get("RINGCAST_TEST_COPY") == self.name]
        return [pid for pid in mine if word in _command(pid)]

    def end(self) -> tuple[int, str, str]:
        """Return exit code and output when no process is left."""
        out, err = self.process.communicate(timeout=patience(60))
        until(lambda: not self.processes(), SOON)
        return self.process.returncode, out, err


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def stalls(handler: Handler, start: int, stop: int) -> bool:
    """Answer the first question, of the size, and no other one."""
    if stop - start == 1:
        return False
    handler.store.ended.wait()
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("whose", [" -m ringcast cp ", " -m ringcast_launcher -H ", " -m ringcast.commands.cp.worker "])
def test_nothing_outlives_a_command_that_is_killed_while_no_byte_comes(
    served: Store, tmp_path: Path, whose: str, number: signal.Signals
) -> None:
    served.always = stalls
    copy = Copy(served, tmp_path)
    until(lambda: [asked for asked in served.asked if asked != (0, 1)])
    for pid in copy.processes(whose):
        os.kill(pid, number)
    code, out, _ = copy.end()
    assert (code != 0, out) == (True, "")
    assert not (tmp_path / "model.bin").exists()


LARGE = bytes(100_000_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_same_command_reads_only_what_a_killed_one_has_not(tmp_path: Path, number: signal.Signals) -> None:
    with store(LARGE) as served:
        served.rate = 10_000_000
        copy = Copy(served, tmp_path)
        until(lambda: served.asked and max(start for start, _ in served.asked) > 50_000_000)
        copy.process.send_signal(number)
        code, out, err = copy.end()
        assert (code != 0, out) == (True, "")
        if number == signal.SIGINT:
            assert err == (
                "ringcast cp: interrupted; data that has arrived is kept, and the same command sends only the rest\n"
            )
        assert not (tmp_path / "model.bin").exists()
        served.rate = None
        served.forget()
        report = tmp_path / "report.json"
        code, out, err = Copy(served, tmp_path, "--json-report", str(report)).end()
        assert (code, err) == (0, "")
        assert min(start for start, stop in served.asked if stop > 1) > 10_000_000
        assert " were there already" in out
    assert (tmp_path / "model.bin").read_bytes() == LARGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.bin", "report.json"]
    (host,) = json.loads(report.read_text())["hosts"]
    assert host["source"]["nbytes"] < 90_000_000
    assert host["network"] == {"nbytes": 0, "seconds": 0.0}

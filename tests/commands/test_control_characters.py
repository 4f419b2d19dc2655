"""A terminal obeys no control characters in the names of files and hosts that errors quote."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import pytest

from ringcast.commands import cli as ringcast_cli
from ringcast.commands.bench.cases import Case, Measurement
from ringcast.commands.bench.figures import judge
from ringcast.commands.bench.report import line
from ringcast.commands.doctor.finding import warn
from ringcast.commands.doctor.report import show
from ringcast.transfer.destination import Destination
from ringcast.transfer.pipeline import Buffers
from ringcast.transfer.stalls import Stalls
from ringcast.transfer.writer import Writer
from ringcast_launcher import cli
from ringcast_launcher.decide.job_report import JobReport
from ringcast_launcher.nodes.node_agent import _say

NAME = "it\x1b[31mis\x9bred"
SHOWN = "it\\x1b[31mis\\x9bred"


@pytest.mark.parametrize(
    "typed",
    [
        [NAME],
        ["bench", NAME],
        ["calibrate", NAME],
        ["cp", NAME, "-H", "host:/x"],
        ["cp", "x", "--hostfile", NAME, ":/x"],
        ["cp", "x", "-H", f"{NAME}:/x"],
        ["doctor", NAME],
        ["doctor", "--hostfile", NAME],
        ["explain", "bcast", NAME],
        ["explain", "bcast", "--plot", f"{NAME}/x"],
        ["ps", "--", NAME, NAME],
        ["simulate", "bcast", "--plot", f"{NAME}/x"],
    ],
    ids=lambda typed: " ".join(typed).replace(NAME, "NAME"),
)
def test_a_command_shows_a_name_with_escapes(
    typed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()
    try:
        code: object = ringcast_cli.main(typed)
    except SystemExit as end:
        code = end.code
    out, err = capfd.readouterr()
    assert code == 2
    assert SHOWN in err
    assert "\x1b" not in out + err
    assert "\x9b" not in out + err


@pytest.mark.parametrize(
    "typed",
    [
        ["--hostfile", NAME, "prog.py"],
        ["-H", NAME, "prog.py"],
        ["--json-report", f"{NAME}/x", "-n", "1", "prog.py"],
        [f"--{NAME}", "-n", "1", "prog.py"],
        ["-n", NAME, "prog.py"],
    ],
    ids=lambda typed: " ".join(typed).replace(NAME, "NAME"),
)
def test_the_launcher_shows_a_name_with_escapes(typed: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = cli.command(typed, {})
    except SystemExit as end:
        code = end.code
    out, err = capfd.readouterr()
    assert code == 2
    assert SHOWN in err
    assert "\x1b" not in out + err
    assert "\x9b" not in out + err


def test_the_last_line_of_a_job_has_escapes_but_the_output_of_its_program_is_its_own() -> None:
    assert JobReport(1, NAME).last_words() == f"ringcast-launch: {SHOWN}\n"
    assert JobReport(1, "failed").last_words(NAME) == f"{NAME}\nringcast-launch: failed\n"


def test_the_words_of_another_node_are_shown_with_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    _say(f"{NAME}\n")
    assert capfd.readouterr().err == f"{SHOWN}\n"


def test_a_table_of_the_benchmark_shows_the_error_of_another_library_with_escapes() -> None:
    case = Case("bcast", 2, 8)
    assert line(judge(Measurement(case, "theirs", problem=NAME), None)).endswith(SHOWN)


def test_doctor_shows_the_findings_of_a_host_with_escapes() -> None:
    drawn = io.StringIO()
    show([("host", warn(NAME, NAME, NAME))], ["host"], drawn)
    assert drawn.getvalue().count(SHOWN) == 3
    assert NAME not in drawn.getvalue()


def test_a_writer_keeps_an_unexpected_error_with_escapes() -> None:
    def fail() -> None:
        raise ValueError(NAME)

    class Closed:
        def close(self) -> None:
            pass

    writer = Writer(cast(Destination, Closed()), Buffers(), Stalls(None))
    writer.call(fail)
    writer.close()
    assert writer.error == f"ValueError: {SHOWN}"

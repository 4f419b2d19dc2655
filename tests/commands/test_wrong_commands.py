"""Wrong command lines say in one line what to type instead."""

from __future__ import annotations

import pytest

from ringcast.commands import cli as ringcast_cli
from ringcast_launcher import cli


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run prog.py", "programs are started with ringcast-launch: ringcast-launch -n N prog.py"),
        ("run", "programs are started with ringcast-launch: ringcast-launch -n N PROGRAM"),
        ("prog.py -n 4", "programs are started with ringcast-launch: ringcast-launch -n N prog.py"),
        ("expalin", "there is no command expalin; did you mean explain?"),
    ],
)
def test_a_command_that_does_not_exist(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ringcast_cli.main(typed.split()) == 2
    assert capsys.readouterr() == ("", f"ringcast: {said}\n")


def ended(typed: str) -> int | str | None:
    """Return the exit code of the launcher, whether its parser ends it or what looks at the job."""
    try:
        return cli.command(typed.split(), {})
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--timout 3 -n 2 prog.py", "there is no option --timout; did you mean --timeout?"),
        ("--timout=3 -n 2 prog.py", "there is no option --timout; did you mean --timeout?"),
        ("-c 2 prog.py", "there is no option -c; ringcast-launch --help lists all"),
        ("prog.py -n 4 x", "options come before the program: ringcast-launch -n 4 prog.py x"),
        ("-m module -np 4", "options come before the program: ringcast-launch -np 4 -m module"),
    ],
)
def test_an_option_that_does_not_exist_or_stands_after_the_program(
    typed: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(typed) == 2
    assert capfd.readouterr() == ("", f"ringcast-launch: {said}\n")

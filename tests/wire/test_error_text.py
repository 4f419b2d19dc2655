"""Users see their own frames; those inside ringcast are counted."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import thread_endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.wire.error_text import Translation, in_a_line, origin, text_of

PACKAGE = Path(ringcast.__file__).parent
COMM = Communicator(Group(thread_endpoints(1)[0], 1, NETWORKS["threads"]))


def caught(fn: object) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011
        fn()  # type: ignore[operator]
    return found.value


def test_frames_inside_ringcast_are_one_line() -> None:
    text = text_of(caught(lambda: COMM.bcast(1, root=7)))
    *_, before, folded, last = text.splitlines()
    assert "COMM.bcast(1, root=7)" in before or "^^^" in before
    assert folded.startswith("  ... ")
    assert folded.endswith("inside ringcast (RINGCAST_DEBUG=info shows them)")
    assert last.startswith("ringcast.errors.ArgumentError: rank 0: bcast")
    assert str(PACKAGE) not in text


def test_all_frames_are_there_on_demand() -> None:
    error = caught(lambda: COMM.bcast(1, root=7))
    assert text_of(error, whole=True) == "".join(traceback.format_exception(error))


def test_an_error_without_ringcast_is_as_python_prints_it() -> None:
    error = caught(lambda: {}["a"])
    assert text_of(error) == "".join(traceback.format_exception(error))


def test_where_another_error_arose_inside_ringcast_its_place_is_shown() -> None:
    wrong: Any = "some"
    text = text_of(caught(lambda: ringcast.init(threads=wrong)))
    assert 'ringcast/bootstrap/world.py", line' in text


@pytest.mark.parametrize("name", ["Allreduce", "Get_rank", "nonsuch"])
def test_a_name_that_does_not_exist_is_the_programs_mistake(name: str) -> None:
    text = text_of(caught(lambda: getattr(COMM, name)))
    *_, folded, last = text.splitlines()
    assert folded == "  ... 1 frame inside ringcast (RINGCAST_DEBUG=info shows them)"
    assert last.startswith(f"AttributeError: a communicator has no attribute '{name}'")
    assert str(PACKAGE) not in text


def test_causes_are_folded_too() -> None:
    def fail() -> None:
        try:
            COMM.bcast(1, root=7)
        except ValueError as error:
            raise KeyError("a") from error

    text = text_of(caught(fail))
    assert text.count("inside ringcast") == 1
    assert text.count("Traceback") == 2


def test_each_error_of_a_group_is_folded_by_its_own_kind() -> None:
    wrong: Any = "some"
    of_arguments, broken = caught(lambda: COMM.bcast(1, root=7)), caught(lambda: ringcast.init(threads=wrong))
    text = text_of(BaseExceptionGroup("both", [of_arguments, broken]))
    assert text.count("inside ringcast") == text_of(of_arguments).count("inside ringcast") + text_of(broken).count(
        "inside ringcast"
    )
    assert text.count('ringcast/bootstrap/world.py", line') == 1


class Translated(Translation, RuntimeError):
    """An error as a program for another library expects it."""

    __module__ = "other.LIBRARY"


def test_a_translated_error_is_told_once_by_its_own_kind() -> None:
    def fail() -> None:
        try:
            COMM.bcast(1, root=7)
        except ValueError as error:
            raise Translated(str(error)) from error

    error = caught(fail)
    text = text_of(error)
    assert (text.count("Traceback"), text.count("argument root")) == (1, 1), text
    assert text.splitlines()[-1] == f"other.LIBRARY.Translated: {error}"
    assert in_a_line(error) == f"LIBRARY.Translated: {error}"
    assert origin(error) is error.__cause__
    assert text_of(error, whole=True) == "".join(traceback.format_exception(error))


def test_what_a_program_did_before_a_translated_error_is_kept() -> None:
    def fail() -> None:
        try:
            raise KeyError("mine")
        except KeyError as error:
            raise Translated("other") from error

    error = caught(fail)
    assert "KeyError: 'mine'" in text_of(error)
    assert origin(error) is error

"""Equal errors of many ranks stand on the screen once."""

from __future__ import annotations

import pytest

from ringcast_launcher.decide.equal_errors import ROOM, Said, named_error, told_once

HEAD = "Traceback (most recent call last):\n"


def trace(line: int, error: str) -> str:
    return f'{HEAD}  File "prog.py", line {line}, in <module>\n    step()\n{error}\n'


def test_equal_texts_stand_once_and_that_of_the_cause_comes_last() -> None:
    texts = {rank: trace(3, "ValueError: no data") for rank in range(4)} | {4: trace(9, "KeyError: 1")}
    assert told_once(texts, 2) == ([Said((4,), texts[4])], Said((0, 1, 2, 3), texts[0]))
    assert told_once(texts, 4) == ([Said((0, 1, 2, 3), texts[0])], Said((4,), texts[4]))
    assert told_once(texts, None) == ([Said((0, 1, 2, 3), texts[0]), Said((4,), texts[4])], None)


def test_the_number_of_the_rank_itself_makes_no_difference_and_is_left_out() -> None:
    texts = {rank: trace(3, f"ringcast.errors.ArgumentError: rank {rank}: bcast: no") for rank in range(3)}
    assert told_once(texts, 0) == ([], Said((0, 1, 2), trace(3, "ringcast.errors.ArgumentError: bcast: no")))
    assert told_once({1: texts[1]}, 1) == ([], Said((1,), texts[1]))  # of one rank it stays as it was


def test_ranks_that_were_only_stopped_share_a_line_for_each_place() -> None:
    stopped = {r: f"stopped at prog.py:7: PeerFailed: rank {r}: peer rank 1 failed, round {r}\n" for r in (0, 2, 3)}
    texts = {**stopped, 1: trace(3, "KeyError: 1"), 4: "stopped at prog.py:8: Revoked: rank 4: the communicator\n"}
    others, named = told_once(texts, 1)
    assert others == [
        Said((0, 2, 3), "stopped at prog.py:7: PeerFailed\n"),
        Said((4,), "stopped at prog.py:8: Revoked\n"),
    ]
    assert named == Said((1,), texts[1])


@pytest.mark.parametrize("kind", ["CollectiveMismatch", "CollectiveTimeout"])
def test_of_what_two_ranks_notice_one_traceback_is_enough(kind: str) -> None:
    texts = {
        0: trace(3, f"ringcast.errors.{kind}: rank 0: mine"),
        1: trace(5, f"ringcast.errors.{kind}: rank 1: other"),
    }
    assert told_once(texts, 0) == ([Said((1,), f"stopped at prog.py:5: {kind}\n")], Said((0,), texts[0]))


def test_where_all_ranks_say_something_else_there_is_room_for_a_few() -> None:
    texts = {rank: trace(3, f"ValueError: {10 * rank}") for rank in range(16)}
    others, named = told_once(texts, 0)
    assert named == Said((0,), texts[0])
    assert sum(said.text.count("\n") for said in others) <= ROOM + 1
    assert sorted(rank for said in others for rank in said.ranks) == list(range(1, 16))
    assert others[0].text == "stopped at prog.py:3: ValueError\n"


def test_an_error_of_several_lines_is_known_by_its_first_one() -> None:
    text = f"{trace(3, 'pkg.Bad: first')}more of it\nand more\n"
    others, _ = told_once({0: "x\n" * ROOM, 1: text}, None)
    assert Said((1,), "stopped at prog.py:3: Bad\n") in others


def test_what_tells_no_place_is_shown_whole_however_long_it_is() -> None:
    texts = {0: "stopped\n" * 50, 1: "?\n" * 50}
    assert told_once(texts, None) == ([Said((0,), texts[0]), Said((1,), texts[1])], None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (trace(3, "ModuleNotFoundError: No module named 'a'"), "ModuleNotFoundError: No module named 'a'"),
        (trace(3, "pkg.part.Wrong: first\nsecond"), "Wrong: first"),
        (trace(3, "f.<locals>.Wrong: here"), "Wrong: here"),
        (trace(3, "KeyboardInterrupt"), "KeyboardInterrupt"),
        ('  File "a.py", line 2\n    x = = 3\n        ^\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax"),
        ("", ""),
        ("no input file\n", ""),
        ("/usr/bin/python3: No module named nosuch\n", ""),
    ],
)
def test_the_error_that_ends_a_program_is_named_by_what_python_prints(text: str, named: str) -> None:
    assert named_error(text) == named

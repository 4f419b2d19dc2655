"""The space-time diagram: an arrow for each message, labels where there is room, and what cannot be drawn is said."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ringcast._util import output_files
from ringcast.algorithms import ALGORITHMS, Algorithm, Params, build
from ringcast.analysis import diagram, rounds
from ringcast.analysis.diagram import FEW, LABELLED, LARGEST, Diagram, arrange, draw
from ringcast.analysis.rounds import Transfer, messages
from ringcast.commands import cli
from ringcast.schedules.schedule import Schedule
from support.cases import each

ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]


def schedules_of(collective: str, name: str, params: Params) -> list[Schedule]:
    return [build(collective, name, params, rank) for rank in range(params.size)]


def arranged(collective: str, name: str, params: Params) -> Diagram:
    schedules = schedules_of(collective, name, params)
    return arrange(messages(schedules), params.size, schedules[0].parts)


@pytest.mark.parametrize("module", [diagram, rounds], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: object) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@each(
    "entry, p",
    [(entry, p) for entry in ENTRIES for p in (1, 2, 3, 8, 33) if not entry.fits(Params(p))],
)
def test_every_message_has_an_arrow_with_a_short_label_and_a_colour(entry: Algorithm, p: int) -> None:
    params = Params(p, p // 2, 3 if entry.blocks else 1, distance=p // 2)
    schedules = schedules_of(entry.collective, entry.name, params)
    moved = messages(schedules)
    found = arrange(moved, p, schedules[0].parts)
    assert [(one.round, one.source, one.dest) for one in found.arrows] == [(m.round, m.source, m.dest) for m in moved]
    assert {one.colour for one in found.arrows} - {None} == set(range(found.colours))
    assert all(1 <= len(one.label) <= diagram.ROOM for one in found.arrows)


def test_of_a_broadcast_colours_are_blocks() -> None:
    found = arranged("bcast", "circulant", Params(9, root=3, nblocks=4))
    assert (found.size, found.rounds, found.colours) == (9, 7, 4)
    assert all(one.label == f"b{one.colour}" for one in found.arrows)


def test_of_several_parts_colours_are_parts_whatever_their_blocks() -> None:
    found = arranged("allgatherv", "pipelined_ring", Params(5, nblocks=3))
    assert found.colours == 5
    assert all(one.label.partition(".")[0] == str(one.colour) for one in found.arrows)


def test_parts_that_never_travel_take_no_colour() -> None:
    found = arranged("scatter", "linear", Params(4, root=0))
    assert {one.label: one.colour for one in found.arrows} == {"1": 0, "2": 1, "3": 2}


def test_scratch_and_nothing_have_no_colour() -> None:
    found = arrange([Transfer(0, 0, 1, (2,)), Transfer(1, 1, 0, ()), Transfer(2, 0, 1, (1, 0))], 2, (1, 1))
    assert [(one.label, one.colour) for one in found.arrows] == [("t0", None), ("-", None), ("1+0", 0)]


def test_a_part_may_have_no_blocks() -> None:
    found = arrange([Transfer(0, 0, 1, (0,)), Transfer(1, 0, 1, (2,))], 2, (2, 0, 1))
    assert [(one.label, one.colour) for one in found.arrows] == [("0.0", 0), ("2", 1)]


def test_many_pieces_are_counted() -> None:
    (arrow,) = arrange([Transfer(0, 0, 1, tuple(range(20)))], 2, (1,) * 20).arrows
    assert arrow.label == "×20"


def test_labels_are_for_what_is_small_enough() -> None:
    assert arranged("allgather", "ring", Params(LABELLED)).labelled
    assert not arranged("allgather", "ring", Params(LABELLED + 2)).labelled
    assert not arrange([Transfer(LABELLED, 0, 1, (0,))], 2, (1,)).labelled


def test_what_is_too_large_is_refused() -> None:
    assert arrange([Transfer(LARGEST - 1, 0, 1, (0,))], LARGEST, (1,)).rounds == LARGEST
    for message, size in (Transfer(LARGEST, 0, 1, (0,)), 2), (Transfer(0, 0, 1, (0,)), LARGEST + 1):
        with pytest.raises(ValueError, match=f"too many to be drawn: at most {LARGEST} of each"):
            arrange([message], size, (1,))


@pytest.mark.parametrize(("p", "texts"), [(1, 0), (2, 1), (9, 8), (LABELLED + 1, 0)])
def test_the_drawing_has_an_arrow_for_each_message_and_labels_where_there_is_room(p: int, texts: int) -> None:
    found = arranged("bcast", "binomial", Params(p))
    axes = Figure().add_subplot()
    diagram._draw_grid(axes, found)
    diagram._draw_arrows(axes, found)
    assert len(axes.texts) == texts
    arrows = [one for one in axes.collections if type(one).__name__ == "Quiver"]
    assert sum(one.N for one in arrows) == p - 1
    top, bottom = reversed(axes.get_ylim())
    assert top < 0 <= p - 1 < bottom  # ranks go down


@pytest.mark.parametrize("n", [0, 1, len(FEW), len(FEW) + 1, LARGEST])
def test_there_are_as_many_colours_as_asked_for(n: int) -> None:
    assert len(set(diagram._palette(n)[:n])) == n


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("p", [1, 5, 65])
def test_a_drawing_is_written_whole(tmp_path: Path, kind: str, p: int) -> None:
    draw(tmp_path / f"out.{kind}", arranged("bcast", "circulant", Params(p, nblocks=2)), "a title")
    assert [path.name for path in tmp_path.iterdir()] == [f"out.{kind}"]
    assert (tmp_path / f"out.{kind}").stat().st_size > 1000


# The command.


def refused(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    assert cli.main(["explain", *argv]) == code
    out, err = capsys.readouterr()
    assert not out
    return err


def test_the_command_draws_beside_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, more in ("a.png", ()), ("b.svg", ("--json",)):
        assert cli.main(["explain", "reduce", "-n", "5", "--root", "2", "--plot", str(tmp_path / name), *more]) == 0
        assert capsys.readouterr().out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "b.svg").read_text()
    assert "<svg" in text


def test_what_cannot_be_drawn_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = str(tmp_path / "a.png")
    assert "501 rounds are too many to be drawn" in refused(
        capsys, "bcast", "-n", "2", "--nblocks", "501", "--plot", image
    )
    assert "--plot a.doc: expected a file *." in refused(capsys, "bcast", "--plot", "a.doc")
    assert "--plot /nowhere/a.png: no file can be written there" in refused(capsys, "bcast", "--plot", "/nowhere/a.png")
    assert "leave out --list" in refused(capsys, "--list", "--plot", image)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_remedy_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = refused(capsys, "bcast", "--plot", str(tmp_path / "a.png"))
    assert said == "ringcast explain: --plot needs matplotlib: pip install 'matplotlib>=3.8'\n"


def test_a_disk_that_is_full_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_files.Path, "replace", full)
    said = refused(capsys, "bcast", "--plot", str(tmp_path / "a.png"), code=1)
    assert said == f"ringcast explain: {tmp_path}/a.png was not written: No space left on device\n"
    assert not list(tmp_path.iterdir())

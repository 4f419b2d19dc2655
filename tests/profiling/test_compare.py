"""Two profiles side by side: what is change, and what is noise."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ringcast.commands.cli import main
from ringcast.profiling.compare import compared
from ringcast.profiling.report import FORMAT
from ringcast.profiling.same_site import paired


def profile(times: dict[tuple[str, int], list[float]], file: str = "/home/me/prog.py") -> dict[str, Any]:
    """Return what a comparison needs of a profile in which sites, by name and line, have calls of these times."""
    sites = [
        {"id": i, "file": file, "line": line, "name": name, "time": sum(calls)}
        for i, ((name, line), calls) in enumerate(times.items())
    ]
    events = [(0, i, 0.1 * n, 0.1 * n + t, None) for i, calls in enumerate(times.values()) for n, t in enumerate(calls)]
    command = ["python", file]
    return {
        "format": FORMAT,
        "command": command,
        "span": 1.0,
        "sites": sites,
        "timeline": {"stride": 1, "events": events},
    }


def noisy(mean: float, seed: int, spread: float = 0.2, count: int = 200) -> list[float]:
    luck = random.Random(seed)
    return [mean * luck.uniform(1 - spread, 1 + spread) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "within noise"), (1.3, "slower"), (0.7, "faster")])
def test_change_is_told_from_noise(seed: int, factor: float, verdict: str) -> None:
    before = profile({("allreduce", 7): noisy(0.01, seed)})
    after = profile({("allreduce", 9): noisy(0.01 * factor, 1000 + seed)})
    (change,) = compared(before, after)
    assert change.verdict == verdict
    assert change.line == 9
    assert change.change == pytest.approx(factor - 1, abs=0.06)


def test_calls_that_are_new_or_gone_or_few() -> None:
    before = profile({("allreduce", 7): [1.0], ("bcast", 8): [1.0, 1.0]})
    after = profile({("allreduce", 7): [3.0], ("gather", 9): [1.0]})
    assert {change.name.split()[0]: change.verdict for change in compared(before, after)} == {
        "allreduce": "too few calls",
        "bcast": "gone",
        "gather": "new",
    }


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[int | None, int | None]]:
    """Return the lines of sites that are the same, in order."""
    found = [(old and old["line"], new and new["line"]) for old, new in paired(before, after)]
    return sorted(found, key=lambda pair: (pair[0] or 0, pair[1] or 0))


@pytest.mark.parametrize("added", range(4))
@pytest.mark.parametrize("by", [3, 7])
def test_one_call_added_leaves_the_others_as_they_are(added: int, by: int) -> None:
    """The calls after it move by some lines; removed again, it alone is gone. Shapes tell what lines do not."""
    old = [10, 20, 33]
    new = [line + by * (i >= added) for i, line in enumerate(old)]
    place = new[added] - 2 if added < len(old) else old[-1] + 4
    before = profile({("allreduce", line): [1.0] for line in old})
    after = profile({("allreduce", line): [1.0] for line in [*new, place]})
    if added == len(old) - 1:
        after["sites"][-1]["shape"] = "(7,)"
    assert lines(before, after) == [(None, place), *zip(old, new, strict=True)]
    assert sorted(lines(after, before), key=str) == sorted([(place, None), *zip(new, old, strict=True)], key=str)


def test_arguments_tell_calls_apart_and_a_changed_one_is_still_the_same() -> None:
    before = profile({("allreduce", 10): [1.0], ("allreduce", 12): [1.0]})
    after = profile({("allreduce", 10): [1.0], ("allreduce", 11): [1.0], ("allreduce", 13): [1.0]})
    for one, dtype in zip([*before["sites"], *after["sites"]], ("<f8", "<f4", "<i8", "<f8", "<f4"), strict=True):
        one["dtype"] = dtype
    assert lines(before, after) == [(None, 10), (10, 11), (12, 13)]
    after["sites"][1]["dtype"] = "<f2"
    del after["sites"][0]
    assert lines(before, after) == [(10, 11), (12, 13)]


def test_files_are_the_same_by_the_end_of_their_paths() -> None:
    olds = [f"/home/me/{name}" for name in ("a/solve.py", "b/solve.py")]
    news = [f"/scratch/{name}" for name in ("b/solve.py", "a/solve.py")]
    before, after = (profile({("bcast", line): [1.0] for line in (1, 2)}) for _ in range(2))
    for one, file in zip([*before["sites"], *after["sites"]], [*olds, *news], strict=True):
        one["file"] = file
    assert lines(before, after) == [(1, 2), (2, 1)]


def test_a_main_file_of_another_name_is_compared_and_another_module_is_not() -> None:
    before, after = (profile({("bcast", 7): [1.0]}, file) for file in ("/home/me/a.py", "/home/me/b.py"))
    assert lines(before, after) == [(7, 7)]
    after["command"] = ["other.py"]
    assert lines(before, after) == [(None, 7), (7, None)]


def test_the_command_prints_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, mean in zip(files, (0.01, 0.02), strict=True):
        file.write_text(json.dumps(profile({("allreduce", 7): noisy(mean, 1)})))
    assert main(["profile", *map(str, files)]) == 0
    out = capsys.readouterr().out
    assert "allreduce at prog.py:7" in out
    assert "+100 %" in out
    assert "slower" in out
    assert main(["profile", str(files[0]), str(tmp_path / "c.json")]) == 2
    assert "c.json" in capsys.readouterr().err

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


def profile(times: dict[tuple[str, int], list[float]]) -> dict[str, Any]:
    """Return what a comparison needs of a profile in which sites, by name and line, have calls of these times."""
    sites = [
        {"id": i, "file": "/home/me/prog.py", "line": line, "name": name, "time": sum(calls)}
        for i, ((name, line), calls) in enumerate(times.items())
    ]
    events = [(0, i, 0.1 * n, 0.1 * n + t, None) for i, calls in enumerate(times.values()) for n, t in enumerate(calls)]
    return {"format": FORMAT, "span": 1.0, "sites": sites, "timeline": {"stride": 1, "events": events}}


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

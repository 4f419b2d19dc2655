"""Every algorithm sends the same bytes, and counts in the same way, as it always did: on whatever path its steps run.

`support.wire_law` says what is compared, and how the golden file is made again where a change is meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from support import wire_calls, wire_law
from support.any_order import End
from support.wire_calls import ENTRIES, RANKS
from support.wire_law import Texts

GOLDEN = wire_law.golden()
LANES = 0, 8  # seeds of `support.any_order`, by which messages can be looked at: the first fails no look …
ENGINE = 4  # … and one by which they cannot
FEW = 8  # ranks at most whose threads run in turn in every test run: with more it takes long


def ranks(algorithm: str, *, quick: bool, most: int = RANKS[-1]) -> list[int]:
    """Return one number of ranks, up to `most`, chosen by the names of the cases; without `quick` all others."""
    able = [p for p in RANKS if wire_calls.fits(ENTRIES[algorithm], p)]
    chosen = min((p for p in able if 1 < p <= most), key=lambda p: crc32(f"{algorithm} {p}".encode()))
    return [p for p in able if (p == chosen) == quick]


def lines(algorithm: str, *, quick: bool) -> list[str]:
    sizes = {f"{algorithm} {p}" for p in ranks(algorithm, quick=quick)}
    return [name for name in GOLDEN if name.removesuffix(wire_law.LARGE) in sizes]


parts = pytest.mark.parametrize(
    "quick", [True, pytest.param(False, marks=pytest.mark.long)], ids=["some sizes", "the others"]
)
algorithms = pytest.mark.parametrize("algorithm", ENTRIES)


def test_the_law_has_every_algorithm_for_every_number_of_ranks() -> None:
    assert [*GOLDEN] == wire_law.names()


@parts
@algorithms
def test_messages_and_counters_are_those_of_the_law(algorithm: str, quick: bool, tmp_path: Path) -> None:
    """So are the credits when all messages have arrived, which `played` asserts."""
    for name in lines(algorithm, quick=quick):
        texts = wire_law.texts(name)
        pairs = zip(Texts._fields, texts, texts.digests, GOLDEN[name], strict=True)
        for kind, text, digest, want in pairs:
            if digest != want:
                file = tmp_path / f"{kind}.txt"
                file.write_text(text, encoding="utf-8")
                pytest.fail(
                    f"the {kind} of {name!r} are not those of the law. They are in {file}; in tests/ of a commit that "
                    f"keeps the law, `python -m support.wire_law {name}` prints what they were"
                )


@parts
@algorithms
def test_the_law_holds_in_any_order_and_in_lanes(algorithm: str, quick: bool) -> None:
    """On the way by which steps run where messages can be looked at, and where the engine goes on in the middle."""
    entry = ENTRIES[algorithm]
    for p in ranks(algorithm, quick=quick, most=FEW):
        calls = [*wire_calls.small(entry, p)]
        want = wire_law.played(entry, p, calls)
        for seed in (*LANES, ENGINE) if not quick else (LANES[crc32(algorithm.encode()) % 2],):
            got, case = wire_law.played_in_any_order(entry, p, calls, seed), f"{algorithm}, {p} ranks, seed {seed}"
            difference = wire_law.first_difference(got.texts.messages, want.texts.messages)
            assert not difference, f"{case}: {difference}"
            missed = wire_law.first_missed(got, want)
            assert not missed, f"{case}: {missed}"


@pytest.mark.parametrize("seed", [*LANES, ENGINE])
def test_messages_go_by_lanes_where_the_law_is_to_look_at_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bool] = []

    def counted(end: End, *message: Any) -> bool:
        sent.append(put(end, *message))
        return sent[-1]

    put = End.put
    monkeypatch.setattr(End, "put", counted)
    entry = ENTRIES["allreduce-circulant"]
    wire_law.played_in_any_order(entry, 5, [*wire_calls.small(entry, 5)], seed)
    assert any(sent) == (seed in LANES)

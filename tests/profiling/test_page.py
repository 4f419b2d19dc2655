"""The page of a profile is one file that holds the profile as data, whatever its texts are, and is small."""

from __future__ import annotations

import json
import re
import stat
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.profiling import page
from ringcast.profiling.page import compact as compacting
from ringcast.profiling.page import document
from ringcast.profiling.page.compact import compact
from ringcast.profiling.page.matrices import matrices
from support import profiles

LIMIT = 2_000_000  # bytes of a page of 64 ranks


class Elements(HTMLParser):
    """The elements of a page, with their attributes and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes), []))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1][2].append(data)

    def texts(self, tag: str) -> list[str]:
        return ["".join(parts) for name, _, parts in self.found if name == tag]


def data_of(text: str) -> Any:
    """Return the data of a page, as a browser finds them."""
    return json.loads(Elements(text).texts("script")[0])


SHAPE = [(name, sorted(attributes)) for name, attributes, _ in Elements(page.render(profiles.empty())).found]


@pytest.mark.parametrize("make", profiles.ALL.values(), ids=profiles.ALL)
def test_a_page_has_the_same_elements_whatever_it_shows(make: Callable[[], Any]) -> None:
    found = Elements(page.render(make())).found
    assert [(name, sorted(attributes)) for name, attributes, _ in found] == SHAPE


@given(text=st.text() | st.sampled_from(["</script>", "<!--<script>", "]]>", "{{SCRIPT}}", "\udc80", "\u2028"]))
def test_any_text_is_data_only(text: str) -> None:
    profile = profiles.profile(2, 1) | {"summary": text, "failure": text, "command": [text], "notes": [text]}
    profile["sites"][0] |= {"file": text, "name": text, "dtype": text, "algorithm": text}
    profile["hosts"][0]["name"] = text
    rendered = page.render(profile)
    assert rendered.encode()  # no lone surrogate is in it
    assert [(name, sorted(attributes)) for name, attributes, _ in Elements(rendered).found] == SHAPE
    data = data_of(rendered)
    assert (data["summary"], data["failure"], data["command"], data["notes"]) == (text, text, [text], [text])
    assert {data["sites"][0][key] for key in ("file", "name", "dtype", "algorithm")} == {text}
    assert data["hosts"][0]["name"] == text


def test_the_policy_allows_the_own_style_and_script_only() -> None:
    elements = Elements(page.render(profiles.hostile()))
    policy = next(attributes["content"] for name, attributes, _ in elements.found if "http-equiv" in attributes)
    digests = [
        b64encode(sha256(text.encode()).digest()).decode()
        for text in (elements.texts("script")[1], elements.texts("style")[0])
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_nothing_of_the_sources_loads_or_parses_anything() -> None:
    for source in document.SOURCES.iterdir():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?://\S+|url\(",
            source.read_text(),
        )
        assert [one for one in found if not one.startswith("http://www.w3.org/2000/svg")] == [], source


def test_each_source_is_in_the_page() -> None:
    sources = {source.name for source in document.SOURCES.iterdir()}
    assert sources == {"page.html", *document.STYLES, *(f"{name}.js" for name in document.modules())}


IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:function|const|class) (\w+)", re.MULTILINE)


def test_modules_import_what_others_export_and_nothing_else() -> None:
    sources = {name: (document.SOURCES / f"{name}.js").read_text() for name in document.modules()}
    exported = {(name, one) for name, text in sources.items() for one in EXPORT.findall(text)}
    imported = set()
    for name, text in sources.items():
        body = IMPORT.sub("", text)
        for names, module in IMPORT.findall(text):
            found = {one.strip() for one in names.split(",") if one.strip()}
            imported |= {(module, one) for one in found}
            assert [one for one in found if not re.search(rf"\b{one}\b", body)] == [], name
    assert imported == exported


def test_numbers_of_a_profile_are_kept() -> None:
    profile = profiles.four()
    data = data_of(page.render(profile))
    assert data["span"] == pytest.approx(profile["span"], rel=1e-5)
    for key, first in profile["ranks"][0].items():
        values = [row[key] for row in profile["ranks"]]
        assert data["ranks"][key] == (values if isinstance(first, str) else pytest.approx(values, rel=1e-5))
    assert [site["bytes_out"] for site in data["sites"]] == [site["bytes_out"] for site in profile["sites"]]
    assert data["sites"][0]["rounds"]["messages"] == profile["sites"][0]["rounds"]["messages"]


def events_of(timeline: Any) -> list[tuple[int, int, float, float, float | None]]:
    """Return the events that a page draws, unpacked as its script unpacks them."""
    found = []
    for rank, numbers in timeline["rows"]:
        at = 0
        for site, later, length, wait in zip(*(iter(numbers),) * 4, strict=True):
            at += later
            ready = None if wait < 0 else (at + wait) * timeline["tick"]
            found.append((rank, site, at * timeline["tick"], (at + length) * timeline["tick"], ready))
    return found


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 2), st.floats(0, 100), st.floats(0, 5), st.none() | st.floats(-1, 6)
        )
    )
)
def test_the_timeline_is_the_same_but_for_a_tick(calls: list[tuple[int, int, float, float, float | None]]) -> None:
    events = [
        [rank, site, start, start + length, None if wait is None else start + wait]
        for rank, site, start, length, wait in calls
    ]
    timeline = compact({"span": 105.0, "timeline": {"stride": 1, "events": events}})["timeline"]
    near = 2 * timeline["tick"]
    expected = sorted(events, key=lambda event: (event[0], event[2]))
    for (rank, site, start, end, ready), event in zip(events_of(timeline), expected, strict=True):
        assert (rank, site, start, end) == (*event[:2], *(pytest.approx(time, abs=near) for time in event[2:4]))
        clipped = None if event[4] is None else min(max(event[4], event[2]), event[3])
        assert ready == (None if clipped is None else pytest.approx(clipped, abs=near))


def test_a_page_of_64_ranks_and_20000_calls_is_small() -> None:
    profile = profiles.sixty_four()
    assert len(profile["timeline"]["events"]) == 20_000
    assert len(page.render(profile)) <= LIMIT


def test_the_largest_page_of_64_ranks_is_small() -> None:
    """Each rank sends to each other one, and there are more sites and calls than a page shows."""
    profile = profiles.sixty_four()
    pairs = [[source, dest, 123_456_789] for source in range(64) for dest in range(64)]
    profile["bytes"], profile["rates"] = pairs, [[*pair[:2], 1.23456e9, 2.3e9] for pair in pairs]
    rounds = {
        "algorithm": "pairwise",
        "nblocks": 1,
        "size": 64,
        "measured": [[r, i, i / 3e4, (i + 0.9) / 3e4] for r in range(64) for i in range(63)],
    }
    rounds["messages"] = [[i, r, (r + i + 1) % 64, 123_456] for i in range(63) for r in range(64)]
    profile["sites"] = [
        site | {"id": 6 * i + site["id"], "rounds": rounds} for i in range(100) for site in profile["sites"]
    ]
    profile["timeline"]["events"] = profile["timeline"]["events"] * 5
    profile["contexts"] = {str(i): list(range(0, 64, 2)) for i in range(1000)}
    assert len(page.render(profile)) <= LIMIT


def test_a_page_of_4096_ranks_is_no_monster() -> None:
    assert len(page.render(profiles.thousands())) <= 2 * LIMIT


def test_what_is_left_out_is_noted() -> None:
    profile = profiles.profile(200, 80)
    profile["sites"] = [site | {"id": i} for i in range(100) for site in profile["sites"]]
    data = compact(profile)
    ranks, calls, sites = data["notes"]
    assert f"the {compacting.ROWS} that waited" in ranks
    assert "600 call sites" in sites
    events = sum(len(numbers) // 4 for _, numbers in data["timeline"]["rows"])
    assert events <= compacting.EVENTS
    assert f"{events:,} of " in calls
    assert len(data["timeline"]["rows"]) == compacting.ROWS
    assert 3 in [rank for rank, _ in data["timeline"]["rows"]]  # for which the others wait
    assert {site["more_ranks"] for site in data["sites"]} == {200 - compacting.NAMED_RANKS, 200 - compacting.FEW_RANKS}
    assert len(data["sites"]) == compacting.SITES


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 129, 1000])
def test_matrices_have_all_bytes(size: int) -> None:
    profile = profiles.profile(size, 1, hosts=min(size, 2))
    total = sum(row[2] for row in profile["bytes"])
    for matrix in matrices(profile):
        assert sum(value for _, _, value in matrix["bytes"]) == total
        assert len(matrix["names"]) <= 64
        assert all(max(cell[:2]) < len(matrix["names"]) for cell in matrix["bytes"] + matrix["rates"])


def test_numbers_that_json_lacks_are_unknown() -> None:
    profile = profiles.four()
    profile["sites"][0]["net"] = float("nan")
    profile["sites"][1]["predicted"] = float("inf")
    sites = data_of(page.render(profile))["sites"]
    assert (sites[0]["net"], sites[1]["predicted"]) == (None, None)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "profile.html"
    page.write(path, profiles.four())
    assert path.read_text() == page.render(profiles.four())
    path.chmod(0o600)
    with pytest.raises(TypeError):
        page.write(path, {"sites": [], "ranks": [], "notes": [object()]})
    assert path.read_text() == page.render(profiles.four())
    assert [one.name for one in tmp_path.iterdir()] == ["profile.html"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_profile_is_not_changed() -> None:
    profile = profiles.profile(100, 4)
    before = json.dumps(profile)
    page.render(profile)
    assert json.dumps(profile) == before

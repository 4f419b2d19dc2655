"""A real browser shows the page of a profile without a complaint, and mouse, keys and screen readers can use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from ringcast.profiling import page
from support import needs, profiles
from support.browser import Page, Pipe, browser

pytestmark = pytest.mark.live

TIMELINE = "canvas.timeline"
LEFT, TOP, ROW = 58, 26, 30  # pixels: where its rows begin, and the height of each of a few
ALL = pytest.mark.parametrize("make", profiles.ALL.values(), ids=profiles.ALL)


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def tab(pipe: Pipe) -> Iterator[Page]:
    opened = Page(pipe)
    yield opened
    opened.close()


def show(tab: Page, folder: Path, profile: Any, theme: str = "light") -> None:
    path = folder / "profile.html"
    page.write(path, profile)
    tab.theme(theme)
    tab.open(path)


def open_all(tab: Page) -> None:
    """Open some of what a reader can open."""
    tab.run("document.querySelectorAll('.opens').forEach((one, i) => i < 3 && one.click())")
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    tab.run("document.querySelector('button.link')?.click()")
    tab.settle()


@ALL
def test_it_opens_without_a_complaint_or_a_request(tab: Page, tmp_path: Path, make: Callable[[], Any]) -> None:
    show(tab, tmp_path, make())
    open_all(tab)
    assert tab.complaints() == []
    assert tab.requests() == [(tmp_path / "profile.html").as_uri()]
    assert tab.texts("h2") == ["In words", "Calls", "Ranks", "Bytes between ranks", "Timeline", "Machine"]


NOTHING: dict[str, Any] = {}
BARE: dict[str, Any] = {  # a call of which nothing is known
    **dict.fromkeys(("file", "collective", "algorithm", "dtype", "shape", "op"), ""),
    **dict.fromkeys(("root", "nblocks", "net", "predicted", "rounds")),
    **dict.fromkeys((*profiles.PARTS, "hidden", "time", "median", "slowest"), 0.0),
    **{key: [] for key in ("histogram", "blame", "by_rank")},
    "id": 7,
    "line": 0,
    "name": "cp",
    "kind": "transfer",
    "ranks": 1,
    "context": 3,
    "variants": 1,
    "calls": 1,
    "bytes_out": 0,
    "bytes_in": 0,
    "sampled": 0,
    "needed": [],
}
NO_ROUNDS = {"algorithm": "", "nblocks": 1, "size": 1, "messages": [], "measured": []}
UNKNOWN = {
    "sites": [
        BARE,
        BARE | {"id": 8, "rounds": NO_ROUNDS},
    ],
    "timeline": {"stride": 10, "events": [[0, 99, 0.0, 0.0, None], [0, 7, 0.1, 0.2, 0.5]]},
    "machine": {"network": {}},
    "contexts": {"3": [0]},
    "advice": [{"rule": "", "text": "", "do": "", "site": 99, "rank": 99, "seconds": 0}],
}


@pytest.mark.parametrize("profile", [NOTHING, UNKNOWN], ids=["nothing", "unknown"])
def test_much_may_be_unknown(tab: Page, tmp_path: Path, profile: dict[str, Any]) -> None:
    show(tab, tmp_path, profile)
    open_all(tab)
    assert tab.complaints() == []
    assert len(tab.texts("h2")) == 6
    text = tab.run("document.body.innerText")
    assert [word for word in ("undefined", "null", "NaN", "Infinity", "[object", ":0") if word in text] == []


def test_a_simulated_call_has_a_title_and_no_line(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, UNKNOWN | {"command": ["ringcast", "simulate", "cp"]})
    assert tab.texts("h1") == ["A simulated cp"]
    assert tab.texts(".place") == ["", ""]


def test_a_communicator_is_named_by_its_ranks(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    number = 14033938117263979815  # more than JavaScript counts to
    profile["contexts"][str(number)] = [0, 2, 3]
    profile["sites"][0] |= {"context": number, "ranks": 3}
    show(tab, tmp_path, profile)
    tab.click(".opens")
    assert "3 ranks: 0, 2, 3" in tab.texts(".details .pairs")[0]
    assert "0, 2, 3" in " ".join(tab.texts("#machine table"))


def test_the_first_screen_names_the_fault(tab: Page, tmp_path: Path) -> None:
    profile = profiles.failed()
    show(tab, tmp_path, profile)
    for selector, text in (
        (".failure", profile["failure"]),
        (".summary", profile["summary"]),
        (".notes", "Nothing is known of rank 5"),
        (".advice", profile["advice"][0]["do"]),
    ):
        assert text in " ".join(tab.texts(selector))
        at = tab.run(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().top")
        assert 0 < at < 700


def test_advice_leads_to_its_call(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, profiles.sixty_four())
    tab.click(".advice a")
    assert tab.run("document.querySelector(':target th').innerText").startswith("allreduce")
    assert tab.run("document.querySelector(':target + .details').checkVisibility()")
    tab.click(".advice a[href='#rank-3']")
    assert tab.run("document.querySelector(':target th').innerText") == "3"


def test_links_lead_to_rows_that_were_not_shown(tab: Page, tmp_path: Path) -> None:
    profile = profiles.profile(100, 5)
    hidden = min(profile["ranks"], key=lambda rank: rank["blamed"])["rank"]
    profile["advice"][0]["rank"] = hidden
    profile["sites"] = [site | {"id": 6 * i + site["id"]} for i in range(30) for site in profile["sites"]]
    profile["advice"][0]["site"] = profile["sites"][-1]["id"]
    show(tab, tmp_path, profile)
    tab.click(f".advice a[href='#rank-{hidden}']")
    assert tab.run("document.querySelector(':target th').innerText") == str(hidden)
    tab.click(f".advice a[href='#site-{profile['advice'][0]['site']}']")
    assert tab.run("document.querySelector(':target + .details').checkVisibility()")


def test_hostile_texts_are_text(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, profiles.hostile())
    open_all(tab)
    assert tab.run("document.title") != "pwned"
    assert tab.run("document.querySelectorAll('img, iframe, b b, h1 h1').length") == 0
    assert "</script>" in tab.run("document.querySelector('#calls').innerText")
    assert "\\xff\\xfe\\u202egnp.py:3" in tab.texts(".place")


@pytest.mark.parametrize(
    "html",
    [
        "<img src='http://127.0.0.1:9/x.png'>",
        "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        "<iframe src='http://127.0.0.1:9/'></iframe>",
        "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
        "<style>body { color: red }</style>",
        "<b onclick='document.title = 1'>",
    ],
)
def test_the_policy_holds_if_a_text_became_html(tab: Page, tmp_path: Path, html: str) -> None:
    show(tab, tmp_path, profiles.empty())
    blocked = "addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective), {once: true})"
    does = f"document.body.insertAdjacentHTML('beforeend', {json.dumps(html)}); document.body.lastChild.click?.()"
    assert tab.run(f"new Promise((done) => {{ {blocked}; {does} }})")


def columns(tab: Page, table: str) -> list[str]:
    return [text.strip() for text in tab.texts(f"{table} table.sorted > thead th")]


@pytest.mark.parametrize("table", ["#calls", "#ranks"])
def test_each_column_sorts_by_mouse(tab: Page, tmp_path: Path, table: str) -> None:
    show(tab, tmp_path, profiles.failed())
    tab.resize(2000, 1000)
    for i in range(len(columns(tab, table))):
        head = f"{table} table.sorted > thead th:nth-child({i + 1})"
        orders = []
        for _ in range(2):
            tab.click(f"{head} button")
            direction = tab.run(f"document.querySelector({json.dumps(head)}).getAttribute('aria-sort')")
            orders.append((direction, tab.texts(f"{table} table.sorted > tbody > tr > th")))
        assert {direction for direction, _ in orders} == {"ascending", "descending"}
        assert tab.run(f"document.querySelectorAll('{table} th[aria-sort]').length") == 1
        assert sorted(orders[0][1]) == sorted(orders[1][1])


def test_keys_sort_and_open(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    show(tab, tmp_path, profile)
    tab.run("document.querySelector('#calls thead th:nth-child(4) button').focus()")
    tab.press("Enter")
    by_late = sorted(profile["sites"], key=lambda site: -site["late"])
    assert [text.split()[0] for text in tab.texts("#calls .sorted > tbody > tr > th")] == [s["name"] for s in by_late]
    tab.press("Enter")
    assert [text.split()[0] for text in tab.texts("#calls .sorted > tbody > tr > th")] == [
        s["name"] for s in by_late[::-1]
    ]
    tab.run("document.querySelector('#calls .opens').focus()")
    tab.press("Space")
    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert "For whom ranks waited" in " ".join(tab.texts("#calls .details"))
    tab.press("Space")
    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "false"


def test_many_ranks_are_sorted_as_a_whole(tab: Page, tmp_path: Path) -> None:
    profile = profiles.profile(100, 5)
    show(tab, tmp_path, profile)
    blamed = sorted(profile["ranks"], key=lambda rank: -rank["blamed"])
    assert tab.texts("#ranks tbody th") == [str(rank["rank"]) for rank in blamed[:64]]
    tab.click("#ranks .more")
    assert len(tab.texts("#ranks tbody th")) == 100


def shown(tab: Page) -> tuple[float, float]:
    """Return the times between which the timeline shows calls."""
    found = tab.run(f"(({{from, to}}) => [+from, +to])(document.querySelector('{TIMELINE}').dataset)")
    return found[0], found[1]


def test_the_timeline_zooms_and_moves(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    show(tab, tmp_path, profile)
    whole = shown(tab)
    assert whole == (0, pytest.approx(profile["span"], rel=1e-3))
    tab.click('[aria-label="Nearer"]')
    near = shown(tab)
    assert near[1] - near[0] == pytest.approx(0.6 * whole[1])
    tab.click('[aria-label="Later"]')
    assert shown(tab)[0] > near[0]
    tab.click('[aria-label="All of the job"]')
    assert shown(tab) == whole
    tab.wheel(TIMELINE, -200)  # scrolls the page, as nobody has chosen the timeline
    assert shown(tab) == whole
    tab.run(f"document.querySelector('{TIMELINE}').focus()")
    tab.wheel(TIMELINE, -400)
    wheeled = shown(tab)
    assert wheeled[0] > 0
    assert wheeled[1] < whole[1]
    tab.drag(TIMELINE, 100)
    assert shown(tab)[0] < wheeled[0]
    assert tab.texts(".panel h3") == []  # dragging opens no call
    for key, moves in ("+", -1), ("-", 1):
        before = shown(tab)
        tab.press(key)
        assert ((shown(tab)[1] - shown(tab)[0]) - (before[1] - before[0])) * moves > 0
    before = shown(tab)
    tab.press("ArrowRight")
    assert shown(tab)[0] > before[0]
    tab.press("0")
    assert shown(tab) == whole


def middle_of(tab: Page, event: list[Any]) -> tuple[float, float]:
    """Return where a call is on the timeline of four ranks, as shares of its width and height."""
    place, (first, last) = tab.place(TIMELINE), shown(tab)
    share = ((event[2] + event[3]) / 2 - first) / (last - first)
    return (LEFT + share * (place["width"] - LEFT)) / place["width"], (TOP + ROW * (event[0] + 0.4)) / place["height"]


def slowest(profile: Any) -> list[Any]:
    """Return the slowest call of the timeline."""
    event: list[Any] = max(profile["timeline"]["events"], key=lambda event: event[3] - event[2])
    return event


def test_keys_find_calls(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, profiles.four())
    tab.run(f"document.querySelector('{TIMELINE}').focus()")
    tab.press("ArrowDown")
    assert tab.texts("#timeline .status")[0].startswith("bcast at solver.py:31, rank 0; ")
    tab.press(".")
    assert tab.texts("#timeline .status")[0].startswith("allreduce at solver.py:41, rank 0; ")
    tab.press("ArrowDown", ",")
    assert tab.texts("#timeline .status")[0].startswith("bcast at solver.py:31, rank 1; ")
    tab.press("Enter")
    assert tab.texts(".panel h3") == ["bcast at solver.py:31 on rank 1"]


def test_the_pointer_finds_calls_and_a_click_opens_their_rounds(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    event = slowest(profile)
    site = next(site for site in profile["sites"] if site["id"] == event[1])
    show(tab, tmp_path, profile)
    tab.click(TIMELINE, *middle_of(tab, event))
    assert tab.texts(".tip > :first-child") == [f"bcast at solver.py:31, rank {event[0]}"]
    assert tab.texts(".panel h3") == [f"bcast at solver.py:31 on rank {event[0]}"]
    assert tab.run("document.querySelectorAll('.panel svg.rounds polygon').length") == len(site["rounds"]["messages"])
    assert tab.run("document.querySelectorAll('.panel .timed').length") == len(site["rounds"]["measured"])
    assert "Predicted" in " ".join(tab.texts(".panel .compare"))
    assert "circulant, 1 block" in " ".join(tab.texts(".panel p"))


def test_the_table_of_slow_calls_leads_to_them(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    event = slowest(profile)
    show(tab, tmp_path, profile)
    whole = shown(tab)
    tab.click("button.link")
    assert tab.texts(".panel h3") == [f"bcast at solver.py:31 on rank {event[0]}"]
    assert shown(tab)[0] <= event[2] < event[3] <= shown(tab)[1] < whole[1]


def test_keys_read_out_a_matrix(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, profiles.four())
    tab.run("document.querySelector('#traffic canvas').focus()")
    tab.press("ArrowRight", "ArrowRight")
    assert tab.texts("#traffic .status")[0].startswith("0 → 1: ")
    tab.press("ArrowDown")
    assert tab.texts("#traffic .status")[0] == "1 → 1: nothing"


@pytest.mark.parametrize("theme", ["light", "dark"])
@ALL
def test_axe_finds_nothing(tab: Page, tmp_path: Path, make: Callable[[], Any], theme: str) -> None:
    script = needs.axe()
    show(tab, tmp_path, make(), theme)
    open_all(tab)
    tab.run(script)
    found = tab.run(
        "axe.run().then((all) => all.violations.map(({id, nodes}) => [id, nodes[0].html, nodes[0].failureSummary]))"
    )
    assert found == []


@pytest.mark.parametrize(("theme", "bounds"), [("light", (0.8, 1.0)), ("dark", (0.0, 0.25))])
def test_it_is_light_or_dark(tab: Page, tmp_path: Path, theme: str, bounds: tuple[float, float]) -> None:
    show(tab, tmp_path, profiles.four(), theme)
    picture = tmp_path / "page.png"
    tab.picture(picture, whole=True)
    assert bounds[0] < float(image.imread(picture)[..., :3].mean()) < bounds[1]


def test_a_change_of_theme_paints_the_canvases_again(tab: Page, tmp_path: Path) -> None:
    pixel = "(() => { const one = document.querySelector('#traffic canvas'); const at = one.width - 4;"
    pixel += " return [...one.getContext('2d').getImageData(at, at, 1, 1).data] })()"
    show(tab, tmp_path, profiles.four(), "light")
    light = tab.run(pixel)
    tab.theme("dark")
    tab.settle()
    assert sum(tab.run(pixel)[:3]) < sum(light[:3]) - 300


def test_paper_has_all_in_light_colours(tab: Page, tmp_path: Path) -> None:
    show(tab, tmp_path, profiles.four(), "dark")
    tab.run(
        "addEventListener('beforeprint', () => { window.ground = getComputedStyle(document.body).color;"
        " window.closed = document.querySelectorAll('details:not([open]), .details[hidden]').length })"
    )
    assert tab.paper().startswith(b"%PDF")
    assert tab.run("window.closed") == 0
    assert tab.run("window.ground") == "rgb(27, 35, 48)"
    assert tab.run("document.documentElement.dataset.print") is None


@pytest.mark.parametrize("make", [profiles.four, profiles.sixty_four, profiles.thousands, profiles.empty])
def test_no_table_is_cut_on_a_common_screen(tab: Page, tmp_path: Path, make: Callable[[], Any]) -> None:
    show(tab, tmp_path, make())
    open_all(tab)
    cut = "[...document.querySelectorAll('.scrolls:has(> table)')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert tab.run(f"{cut}.map((one) => one.ariaLabel)") == []


@pytest.mark.parametrize(
    ("seconds", "shown"), [(3.2e-5, "≈ 30 µs"), (0.96e-3, "≈ 1 ms"), (2.6, "≈ 3 s"), (7e-8, "≈ 70 ns")]
)
def test_a_rough_median_has_one_digit(tab: Page, tmp_path: Path, seconds: float, shown: str) -> None:
    profile = profiles.four()
    profile["sites"][0] |= {"median": seconds, "median_is_rough": True}
    show(tab, tmp_path, profile)
    median = columns(tab, "#calls").index("Median") + 1
    cells = tab.texts(f"#calls .sorted > tbody > tr:not(.details) > :nth-child({median})")
    assert cells[0] == shown.replace(" ", "\xa0")
    assert [cell for cell in cells[1:] if "≈" in cell] == []


def test_large_counts_of_a_histogram_are_short(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    counts = [7, 9_999, 10_000, 123_456, 999_499, 999_500, 12_345_678]
    profile["sites"][0]["histogram"] = [[1e-6 * 2**i, count] for i, count in enumerate(counts)]
    show(tab, tmp_path, profile)
    tab.click(".opens")
    labels = tab.run(
        "[...document.querySelectorAll('.details .histogram text:not(.start)')].map((one) => one.textContent)"
    )
    assert labels == ["7", "9,999", "10k", "123k", "999k", "1M", "12.3M"]


def test_rounds_without_messages_have_their_times(tab: Page, tmp_path: Path) -> None:
    profile = profiles.four()
    profile["sites"][0]["rounds"]["messages"] = []
    show(tab, tmp_path, profile)
    tab.click(".opens")
    assert tab.run("document.querySelectorAll('.details .timed').length") > 0


def test_a_narrow_screen_does_not_scroll_sideways(tab: Page, tmp_path: Path) -> None:
    tab.resize(400, 800)
    show(tab, tmp_path, profiles.hostile())
    open_all(tab)
    assert tab.run("document.documentElement.scrollWidth") <= 400

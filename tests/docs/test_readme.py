"""The documents are true: every snippet runs, every link leads somewhere, every table agrees with the code.

The python blocks of a page are one program. A block that begins with `# name.py` is instead a file that the page's
commands may use; a block of `>>>` lines is a doctest. The commands of a console block (`$ …`, continued by `> …`) are
one shell script; where output is shown, it is what the script prints (`...` stands for anything). Those of a block that
names hosts h0 to h3 run on the first of four emulated hosts.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from ringcast import errors
from ringcast.commands.bench.bed import Bed
from ringcast.config import worker
from ringcast.wire import header
from ringcast.wire.control_messages import NOTICES
from ringcast_launcher.cli import _parser
from support import needs, ray_clusters
from support.beds import run_on
from support.patience import patience
from support.places import ROOT
from support.public import PUBLIC
from support.sshd import ssh_bed

PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "configs/README.md"]
ARCHITECTURE, WALKS = ROOT / "ARCHITECTURE.md", ROOT / "docs/understand/walks.md"
DECISIONS = sorted(path for path in (ROOT / "docs/decisions").glob("*.md") if path.name != "index.md")
RAY = ROOT / "docs/use/ray.md"
PROGRAMS = Path(sys.executable).parent
SHARED = ("examples", "docs", "pyproject.toml")  # what commands find in their directory


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    fences = re.finditer(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in fences]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
FILE = re.compile(r"# (\w+\.py)\n")
FIGURE = re.compile(r"\d+(?:\.\d+)*")
HOST = re.compile(r"\bh([0-3]\b|\[)")
HERE = [block for block in BLOCKS if block.language == "console" and not HOST.search(block.text)]
ON_HOSTS = [block for block in BLOCKS if block.language == "console" and HOST.search(block.text)]


def path_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def named(block: Block) -> str:
    return f"{path_of(block.page)}:{block.line}"


def commands() -> list[object]:
    smoke = next(block for block in HERE if "ringcast-launch" in block.text)
    return [pytest.param(b, id=named(b), marks=[pytest.mark.live] * (b is not smoke)) for b in HERE]


def programs() -> list[object]:
    pages = {b.page for b in BLOCKS if b.language == "python" and not FILE.match(b.text)}
    return [pytest.param(page, id=path_of(page)) for page in sorted(pages)]


def run(command: list[str], folder: Path, programs: Path = PROGRAMS) -> str:
    """Return what the command prints on its standard output; a failure shows all that it said."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RINGCAST_", "PYTHON"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=patience(100),
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in SHARED:
        (tmp_path / name).symlink_to(ROOT / name)
    # What `make demo` would install is installed already, where these tests run.
    activate = tmp_path / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=named)
def test_every_block_is_of_a_kind_that_is_run_or_plain_text(block: Block) -> None:
    assert block.language in ("python", "pycon", "console", "text")
    assert (block.language == "console") == bool(re.search(r"^\$ ", block.text, re.MULTILINE))
    assert block.language == "pycon" or ">>>" not in block.text


@pytest.mark.live
@pytest.mark.parametrize("page", programs())
def test_the_python_of_a_page_runs_alone_and_on_three_ranks(page: Path, folder: Path) -> None:
    # Blank lines, so that tracebacks tell the line of the page.
    lines = [""] * page.read_text().count("\n")
    for block in blocks_of(page):
        if block.language == "python" and not FILE.match(block.text):
            lines[block.line - 1 : block.line - 1 + block.text.count("\n")] = block.text.splitlines()
    (folder / "page.py").write_text("\n".join(lines))
    run([sys.executable, "page.py"], folder)
    if any("ringcast.init()" in line for line in lines):
        run(["ringcast-launch", "-n", "3", "page.py"], folder)


@pytest.mark.parametrize("page", sorted({b.page for b in BLOCKS if b.language == "pycon"}), ids=path_of)
def test_what_the_interpreter_is_shown_to_answer_is_what_it_answers(page: Path) -> None:
    text = "\n".join(block.text for block in blocks_of(page) if block.language == "pycon")
    for name in re.findall(r"^>>> import (pandas|pyarrow)\b", text, re.MULTILINE):
        needs.package(name)
    example = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("block", commands())
def test_every_command_runs_and_prints_what_the_page_shows(block: Block, folder: Path) -> None:
    if any(re.search(r"^import torch$", file.text, re.MULTILINE) for file in blocks_of(block.page)):
        needs.package("torch")
    script, expected = prepared(block, folder)
    with on_ray() if block.page == RAY else nullcontext(PROGRAMS) as programs:
        check(run(["bash", "-euo", "pipefail", "-c", script], folder, programs), expected)


@contextmanager
def on_ray() -> Iterator[Path]:
    with ray_clusters.place() as folder, ray_clusters.alone():
        yield Path(folder, "environment/bin")


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with ssh_bed("4") as made:
        yield made


@pytest.mark.live
@pytest.mark.parametrize("block", ON_HOSTS, ids=named)
def test_every_command_runs_on_hosts_and_prints_what_the_page_shows(block: Block, folder: Path, bed: Bed) -> None:
    script, expected = prepared(block, folder)
    path = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    command = ["bash", "-euo", "pipefail", "-c", f"cd {shlex.quote(str(folder))}\n{path}\n{script}"]
    done = run_on(bed, 0, command, timeout=100)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    check(done.stdout, expected)


def prepared(block: Block, folder: Path) -> tuple[str, str]:
    """Write the files of the page; return the commands of the block and what they are to print, if that is shown."""
    for file in blocks_of(block.page):
        if name := FILE.match(file.text):
            (folder / name[1]).write_text(file.text)
            if name[1] in block.text:
                for library in re.findall(r"^import (lightgbm|xgboost)$", file.text, re.MULTILINE):
                    needs.package(library)
    lines = block.text.splitlines(keepends=True)
    script = "".join(line[2:] for line in lines if line.startswith(("$ ", "> ")))
    # A target must exist; to make it would be to run the tests in the tests.
    script = re.sub(r"^make ", lambda _: f"make -n -C {shlex.quote(str(ROOT))} ", script, flags=re.MULTILINE)
    return script, "".join(line for line in lines if not line.startswith(("$ ", "> ")))


def check(printed: str, expected: str) -> None:
    matches = not expected or doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
    assert matches, f"{expected}\n---\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_a_link_to_a_page_says_what_the_page_is(page: Path) -> None:
    """Its text is a title, which says something to who has not read the page, and not the name of a file."""
    assert re.findall(r"\[[\w./-]+\.md\b[^]]*\]\([^)]*\)", page.read_text()) == []


@pytest.mark.parametrize("page", [ARCHITECTURE, ROOT / "CONTRIBUTING.md", WALKS, *DECISIONS], ids=path_of)
def test_every_file_that_is_named_exists(page: Path) -> None:
    roots = [ROOT, ROOT / "ringcast", ROOT / "launcher/ringcast_launcher"]
    missing = []
    for line in page.read_text().splitlines():
        room = re.match(r"\|[^|]*\| `(\w+)/` \|", line)  # a row of the map: its files are in that room
        places = roots + ([root / room[1] for root in roots] if room else [])
        names = re.findall(r"`(\w[\w./]*(?:/|\.(?:py|md|toml)))`", line)
        missing += [name for name in names if not any((place / name).exists() for place in places)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_every_link_to_a_section_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)]*)\)", page.read_text())
    assert [(file, name) for file, name in links if name not in sections(page.parent / file if file else page)] == []


def sections(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def headings(page: Path, level: int | str = "1,") -> list[str]:
    """Return the headings of a page, of all levels or of one."""
    return re.findall(rf"^#{{{level}}} (.*)$", page.read_text(), re.MULTILINE)


def test_the_index_has_every_page_once_in_its_group() -> None:
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if page != docs / "README.md"]
    listed = re.findall(r"^\* \[.*?\]\((.*?)\): ", (docs / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_the_architecture_page_is_short_and_has_every_room_once() -> None:
    lines = ARCHITECTURE.read_text().splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 140] == []
    listed = [(m[1] is not None, m[2]) for line in lines if (m := re.match(r"\| (L)?\d+ \| `(\w+)/` \|", line))]
    packages = {False: ROOT / "ringcast", True: ROOT / "launcher/ringcast_launcher"}
    rooms = [(which, init.parent.name) for which, top in packages.items() for init in top.glob("*/__init__.py")]
    assert sorted(listed) == sorted(rooms)


PARTS = ["Decided", "Because", "Rejected", "Measured"]


@pytest.mark.parametrize("page", DECISIONS, ids=path_of)
def test_a_decision_has_its_parts_in_order(page: Path) -> None:
    for decision in page.read_text().split("\n## ")[1:]:
        parts = re.findall(r"^\* \*\*(\w+)\*\*: \S", decision, re.MULTILINE)
        assert parts == [part for part in PARTS if part in parts], decision
        assert parts[:1] == ["Decided"], decision


def test_the_index_of_decisions_has_every_one_in_its_place() -> None:
    index = ROOT / "docs/decisions/index.md"
    listed = re.findall(r"^\* \[(.*)\]\((\w+\.md)#", index.read_text(), re.MULTILINE)
    pages = dict.fromkeys(name for _, name in listed)
    assert sorted(pages) == [page.name for page in DECISIONS]
    there = [(title, page) for page in pages for title in headings(index.parent / page, level=2)]
    assert listed == there


def test_the_table_of_helpers_has_every_file_of_support_once() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("### Helpers of the tests")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE)
    files = [path.stem for path in (ROOT / "tests/support").iterdir() if path.stem != "__pycache__"]
    assert listed == sorted(files)


def rows(page: str, width: int) -> list[tuple[str, ...]]:
    """Return the rows of a page's tables of so many columns, without headings and back quotes."""
    cells = [
        tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|"))
        for line in (ROOT / page).read_text().splitlines()
        if line.startswith("|")
    ]
    return [row for row in cells if len(row) == width]


def test_the_protocol_page_has_every_field_of_the_header() -> None:
    blank = header.Header(*(0 for _ in header.Header._fields))
    offsets = [  # where a 1 in the field shows
        header.pack(blank._replace(**{field: 1})).index(1) for field in header.Header._fields
    ]
    sizes = [end - start for start, end in zip(offsets, [*offsets[1:], header.SIZE], strict=True)]
    fields = list(zip(map(str, offsets), map(str, sizes), header.Header._fields, strict=True))
    assert [row[:3] for row in rows("docs/understand/protocol.md", 4) if row[0].isdigit()] == fields


def test_the_protocol_page_has_every_kind_of_message() -> None:
    told = [(int(row[0]), row[1]) for row in rows("docs/understand/protocol.md", 3) if row[0].isdigit()]
    assert told == [(kind.value, kind.name) for kind in header.Kind]


def test_the_protocol_page_has_every_notice_with_its_fields() -> None:
    told = {row[0]: row[1] for row in rows("docs/understand/protocol.md", 3)}
    for notice in NOTICES:
        assert told[notice.__name__] == ", ".join(field.name for field in fields(notice))


def test_the_launching_page_has_every_option_and_variable() -> None:
    text = (ROOT / "docs/use/launching.md").read_text()
    parser, _ = _parser()
    options = {string for action in parser._actions for string in action.option_strings}
    assert {option for option in options if f"`{option}" not in text} == set()
    assert {name for name in worker.WorkerConfig().environment() if f"`{name}`" not in text} == set()
    assert {
        name for name in re.findall(r"RINGCAST_[A-Z_]+", text) if name not in worker.WorkerConfig().environment()
    } == set()


def test_the_usage_page_has_every_collective_and_error() -> None:
    text = (ROOT / "docs/use/usage.md").read_text()
    assert {name for name in PUBLIC if not re.search(rf"\b{name}\b", text)} == set()
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {name for name in own if f"`{name}`" not in text} == set()


def test_the_tables_of_speed_on_the_first_page_are_those_of_the_benchmarks_page() -> None:
    page = (ROOT / "docs/measure/benchmarks.md").read_text()
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"^\|(?: \d \|)? \w+ \| \d+ .*$", readme, re.MULTILINE)
    headings = re.findall(r"^\|.* bytes \|.*$", readme, re.MULTILINE)
    assert len(shown) >= 8
    assert len(headings) == 2
    assert {*shown, *headings} <= set(page.splitlines())


def test_the_figures_that_lead_the_first_page_stand_on_the_pages_that_they_link_to() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    screen = lines[: lines.index("## Install")]
    leading = [line for line in screen if line.startswith(("* ", "| ")) and "](docs/" in line]
    assert len(leading) >= 10
    for line in leading:
        pages = "".join((ROOT / page).read_text() for page in re.findall(r"\]\((docs/[^)#]*)", line))
        figures = re.findall(FIGURE, re.sub(r"\]\([^)]*\)", "", line))
        assert set(figures) <= set(re.findall(FIGURE, pages)), line

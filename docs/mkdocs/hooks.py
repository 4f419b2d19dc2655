"""Hooks of mkdocs: the pages and their order, from docs/README.md, and the lists of them for language models.

Pages keep their places in the repository, so that the links between them, and to other files, are the same there and
in the site: all that is linked to is part of the site. docs/README.md has the order of the pages, and what each is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import llms
import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = {
    "ARCHITECTURE.md": "the design, and where things are",
    "CONTRIBUTING.md": "how to test and change it",
    "CHANGELOG.md": "what is new",
    "SECURITY.md": "how to report a hole",
}
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
PROMPTS = {"console": ("$ ", "> "), "pycon": (">>> ", "... ")}
CONSOLE = re.compile(r'<div class="language-(console|pycon) highlight">(.*?</code>)', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
ENTRY = re.compile(r"^\* \[.*?\]\((.*?)\): (.*)$")  # of docs/README.md


def groups() -> dict[str, list[tuple[str, str]]]:
    """Return the pages of each group, with what they are, as docs/README.md has them."""
    found: dict[str, list[tuple[str, str]]] = {}
    pages: list[tuple[str, str]] = []
    for line in (DOCS / "README.md").read_text().splitlines():
        if line.startswith("## "):
            pages = found.setdefault(re.split(r"[ :]", line[3:])[0], [])
        elif entry := ENTRY.match(line):
            pages.append((f"docs/{entry[1]}", entry[2]))
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the pages."""
    config.nav = [{"Home": ["README.md", {"All pages": "docs/README.md"}, *PROJECT]}]
    config.nav += [{name: [page for page, _ in pages]} for name, pages in groups().items()]
    config.nav += [{"Reference": [f"docs/reference/{name}.md" for name in reference.PAGES]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages, what they link to, and the files of the theme."""
    found = [file for file in files if file.src_dir != config.docs_dir]
    pages = [ROOT / "README.md", *(ROOT / name for name in PROJECT), *sorted(DOCS.rglob("*.md"))]
    targets = {target for page in pages for target in _targets(page)} - set(pages)
    for path in (*pages, *sorted(targets), DOCS / "mkdocs/site.css", DOCS / "mkdocs/iframe-worker.js"):
        source = str(path.relative_to(ROOT))
        file = File.generated(config, source, abs_src_path=str(path))
        found.append(_placed(file))
    for name, text in reference.pages().items():
        found.append(_placed(File.generated(config, f"docs/reference/{name}.md", content=text)))
    return Files(found)


def _targets(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    for link in LINK.findall(page.read_text()):
        target = (page.parent / link).resolve()
        if target.is_file() and target.is_relative_to(ROOT):
            yield target


def _placed(file: File) -> File:
    """Put the pages of docs/ at the top, and programs where a browser shows them."""
    if file.src_uri == "docs/README.md":
        file.dest_uri = "pages.html"
    elif file.is_documentation_page() or file.src_uri.endswith((".svg", ".png", ".css", ".js")):
        file.dest_uri = file.dest_uri.removeprefix("docs/")
    else:
        file.dest_uri = f"files/{file.src_uri}.txt"
    return file


def on_page_content(html: str, **_: object) -> str:
    """Have the button of a block copy its commands, without prompts and what they print."""
    return CONSOLE.sub(lambda block: _with_commands(block[1], block[2]), html)


def _with_commands(kind: str, code: str) -> str:
    lines = unescape(TAG.sub("", code)).splitlines()
    prompts = PROMPTS[kind]
    commands = "\n".join(line[len(prompts[0]) :] for line in lines if line.startswith(prompts))
    return f'<div class="language-{kind} highlight" data-copy="{escape(commands)}">{code}'


def on_post_build(config: MkDocsConfig) -> None:
    """Write the lists for language models."""
    site = Path(config.site_dir)
    known = {"Start": [("README.md", "what it is, an example, how fast it is")], **groups()}
    known["Project"] = list(PROJECT.items())
    pages = {
        group: [(_address(page), _title(ROOT / page), what) for page, what in found] for group, found in known.items()
    }
    pages["Reference"] = [(f"reference/{name}.html", title, first) for name, (title, first) in reference.PAGES.items()]
    (site / "llms.txt").write_text(llms.index(config.site_name, config.site_description or "", pages))
    texts = [(ROOT / page).read_text() for found in known.values() for page, _ in found]
    (site / "llms-full.txt").write_text(llms.full(texts))


def _address(page: str) -> str:
    """Return where a page is in the site."""
    return "index.html" if page == "README.md" else page.removeprefix("docs/").removesuffix(".md") + ".html"


def _title(page: Path) -> str:
    """Return the first heading of a page."""
    return page.read_text().split("\n", 1)[0].removeprefix("# ")

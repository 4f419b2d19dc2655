"""The site of the pages builds without a warning, and a real browser shows it, light and dark."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

import ringcast
from support import needs
from support.patience import patience
from support.places import ROOT
from support.public import BETWEEN_NEIGHBORS, NONBLOCKING, PERSISTENT, PUBLIC

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

BROWSER = "chromium"
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--window-size=1200,900",
)  # fmt: skip
SECONDS = 240  # of anything, on a machine that does much else


# The image is there when the search of the inner page has found something; until then the browser waits for it.
SEARCHES = b"""<!doctype html>
<iframe src="/index.html?q=merge_sorted" width="1200" height="800"></iframe>
<img src="/found">
<script>
const look = setInterval(() => {
    const results = document.querySelector("iframe").contentDocument?.querySelectorAll("a.md-search-result__link")
    if (results?.length) { clearInterval(look); fetch("/results", {method: "POST", body: [...results].join(" ")}) }
}, 100)
</script>"""


class Server(ThreadingHTTPServer):
    """Serves the site, and a page that searches in it."""

    def __init__(self, site: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(site)))
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.found = threading.Event()
        self.results = ""


class Handler(SimpleHTTPRequestHandler):
    """Answers a browser, and takes what its search has found."""

    server: Server

    def do_GET(self) -> None:
        if self.path == "/searches.html":
            self.answer(SEARCHES)
        elif self.path == "/found":
            self.server.found.wait(patience(SECONDS))
            self.answer(b"")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.server.results = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.found.set()
        self.answer(b"")

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs.package("material")
    needs.package("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patience(SECONDS), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def server(site: Path) -> Iterator[Server]:
    with Server(site) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.found.set()
        made.shutdown()
        thread.join()


def browse(folder: Path, *options: str) -> str:
    """Return what the browser prints; it and all that it starts end."""
    needs.programs([] if shutil.which(BROWSER) else [BROWSER], BROWSER)
    command = [BROWSER, *OPTIONS, f"--user-data-dir={folder / 'user'}", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        told, complained = process.communicate(timeout=patience(SECONDS))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, complained
    return told


def brightness(folder: Path, url: str, *options: str) -> tuple[float, float]:
    """Return the mean and the deviation of the pixels of a picture of the page, 0 black to 1 white."""
    picture = folder / "page.png"
    browse(folder, "--virtual-time-budget=5000", f"--screenshot={picture}", *options, url)
    pixels = image.imread(picture)[..., :3]
    return float(pixels.mean()), float(pixels.std())


@pytest.mark.parametrize("page", ["index.html", "understand/drawings.html", "figures/collectives/bcast.svg"])
def test_a_browser_shows_a_page_light(server: Server, page: str, tmp_path: Path) -> None:
    mean, deviation = brightness(tmp_path, f"{server.address}/{page}")
    assert mean > 0.7
    assert deviation > 0.02


@pytest.mark.parametrize("page", ["index.html", "understand/drawings.html"])
def test_a_browser_shows_a_page_dark(server: Server, page: str, tmp_path: Path) -> None:
    mean, deviation = brightness(tmp_path, f"{server.address}/{page}", "--force-dark-mode")
    assert mean < 0.4
    assert deviation > 0.02


def test_a_browser_finds_what_it_searches(server: Server, tmp_path: Path) -> None:
    browse(tmp_path, "--dump-dom", f"{server.address}/searches.html")
    assert "/reference/communicator.html" in server.results


def test_a_browser_finds_what_it_searches_where_the_site_is_a_file(site: Path, tmp_path: Path) -> None:
    address = f"{(site / 'index.html').as_uri()}?q=merge_sorted"
    page = browse(tmp_path, "--virtual-time-budget=20000", "--dump-dom", address)
    found = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', page)
    assert any("/reference/communicator.html" in address for address in found), found


WORDS = {  # that users type, and the page that answers
    "k8s": "use/engines.html",
    "Docker": "use/engines.html",
    "Jupyter": "use/notebooks.html",
    "Parquet": "use/frames.html",
    "HDF5": "use/frames.html",
    "reproducible": "understand/bit-for-bit.html",
    "host dies": "operate/failures.html",
    "MPI_Comm_split": "use/from-mpi4py.html",
}


def test_the_search_knows_the_words_that_users_type(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    for word, page in WORDS.items():
        pages = [entry["location"] for entry in entries if word in entry["title"] + entry["text"]]
        assert any(location.startswith(page) for location in pages), (word, pages)


def test_the_button_of_a_block_copies_commands_only(site: Path) -> None:
    copied = re.findall(r'data-copy="([^"]*)"', (site / "index.html").read_text())
    assert "make demo\n. .venv/bin/activate" in copied
    assert "ringcast-launch -n 4 program.py" in copied
    assert [text for text in copied if re.search(r"^(\$|>>>|\[\d)", text, re.MULTILINE)] == []


def test_the_search_knows_names_and_sections(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert any("merge_sorted" in entry["title"] and "reference/" in entry["location"] for entry in entries)
    assert any(entry["location"] == "understand/drawings.html#bcast" for entry in entries)


def test_the_reference_has_every_public_name(site: Path) -> None:
    there = set()
    for page in (site / "reference").glob("*.html"):
        there |= set(re.findall(r'id="(ringcast\.[\w.]+)"', page.read_text()))
    wanted = {f"ringcast.{name}" for name in ringcast.__all__}
    wanted |= {f"ringcast.Communicator.{name}" for name in PUBLIC}
    wanted |= {f"ringcast.communicator.nonblocking.NonblockingCalls.{name}" for name in NONBLOCKING}
    wanted |= {f"ringcast.communicator.persistent.PersistentCalls.{name}" for name in PERSISTENT}
    wanted |= {f"ringcast.Topology.{name}" for name in BETWEEN_NEIGHBORS if name.startswith("neighbor_")}
    assert sorted(wanted - there) == []


def test_the_lists_for_language_models_have_every_page(site: Path) -> None:
    listed = set(re.findall(r"\]\((\S+)\): \S", (site / "llms.txt").read_text()))
    made = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html", "pages.html"}
    assert listed == made
    assert "Return the root's value on every rank." in (site / "llms-full.txt").read_text()


def test_a_page_needs_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""(?:<script[^>]* src|<img[^>]* src|<link[^>]* href)=["']?(?:https?:)?//""")
    assert [page for page in site.rglob("*.html") if loads.search(page.read_text())] == []
    assert [sheet for sheet in site.rglob("*.css") if re.search(r"url\(['\"]?https?:", sheet.read_text())] == []

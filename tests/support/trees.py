"""Trees of files of all kinds, and what differs between two of them."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

HOLE = 3 << 20


def make_tree(root: Path, large: int = 5_000_000) -> Path:
    """Make files of all sizes, links, empty directories, odd names, and a file with holes."""
    draw = random.Random(7)
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty directory").mkdir()
    for name, size in {
        "empty": 0,
        "one": 1,
        "kilo": 1000,
        "large": large,
        "deep/mega": 1 << 20,
        "deep/odd": 1234567,
    }.items():
        (root / name).write_bytes(draw.randbytes(size))
    for number in range(40):
        (root / "deep" / "er" / f"small {number}").write_bytes(draw.randbytes(number * 37))
    (root / "new\nline").write_bytes(b"odd name")
    with open(os.fsencode(root) + b"/no \xff text", "wb") as file:
        file.write(b"name that is no text")
    with (root / "holes").open("wb") as file:
        file.seek(HOLE)
        file.write(b"data between holes")
        file.truncate(3 * HOLE)
    (root / "link").symlink_to("deep/odd")
    (root / "absolute").symlink_to("/nowhere/at all")
    (root / "to directory").symlink_to("deep")
    (root / "kilo").chmod(0o755)
    (root / "one").chmod(0o400)
    return root


def described(root: Path, *, times: bool = False) -> dict[bytes, tuple[object, ...]]:
    """Return kind, mode, content and, if asked, time of all that is in a directory, by its name."""
    found: dict[bytes, tuple[object, ...]] = {}
    base = os.fsencode(root)
    for folder, directories, files in os.walk(base):
        for name in [*directories, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if os.path.islink(path):
                what: tuple[object, ...] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                what = ("directory", status.st_mode)
            else:
                with open(path, "rb") as file:
                    what = ("file", status.st_mode, hashlib.sha256(file.read()).hexdigest())
            found[os.path.relpath(path, base)] = (*what, status.st_mtime_ns) if times else what
    return found

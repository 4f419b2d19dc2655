"""Result files that are whole or not there: whoever reads meanwhile finds the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def objection(path: Path) -> str:
    """Return why no file can be written at `path`, or nothing; asked before hours of measuring."""
    target = path.resolve()
    if target.is_dir() or not target.parent.is_dir():
        return f"{path}: no file can be written there"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return f"{path}: no permission to write there"
    return ""


def image_objection(path: Path) -> str:
    """Return why matplotlib could not draw into a file of that name, or nothing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "needs matplotlib: pip install 'ringcast[bench]'"
    known = Figure().canvas.get_supported_filetypes()
    return "" if path.suffix[1:] in known else f"{path}: expected a file *.{', *.'.join(known)}"


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let `write` write a new file, then put it in the place of `path`; what is no plain file is written directly.

    A symbolic link stays one, and a file that is there keeps its permissions.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # a device, a pipe
        write(target)
        return
    # The ending stays, as it tells some writers the format.
    part = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        write(part)
        if target.exists():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that holds `text`, as `write_whole` does; characters that cannot be encoded become "?"."""

    def write(target: Path) -> None:
        target.write_bytes(text.encode("utf-8", "replace"))

    write_whole(path, write)

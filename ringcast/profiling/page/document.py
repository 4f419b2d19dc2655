"""Put the page together: the frame, the styles and the scripts of `sources`, and the profile as data.

All text of a profile may be hostile: names of files, messages of errors. It is in the page once, as JSON in an element
that no browser runs, and the scripts make only text of it. Should one ever do more, the page's own policy still forbids
whatever it would load or run: only this style sheet and this script, known by their digests.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ringcast._util.output_files import write_text
from ringcast.profiling.page.compact import compact

SOURCES = Path(__file__).with_name("sources")
STYLES = ("style.css", "tables.css", "figures.css", "print.css")
ENTRY = "main"
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:function|const|class) (\w+))", re.MULTILINE)


def render(profile: Mapping[str, Any]) -> str:
    """Return the page of a profile ("ringcast profile 1"); the profile is unchanged.

    The page has at most 2 MB for 64 ranks: what a larger one would not show is left out, and the page says so.

    >>> render({"ranks": [], "sites": []}).splitlines()[0]
    '<!doctype html>'
    """
    style, script = _style(), _script()
    parts = {
        "POLICY": _policy(style, script),
        "STYLE": style,
        "SCRIPT": script,
        "PROFILE": embedded(compact(profile)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _source("page.html"))


def write(path: str | os.PathLike[str], profile: Mapping[str, Any]) -> None:
    """Write the page of a profile; a reader finds the old file or the whole page.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """
    write_text(path, render(profile))


def embedded(value: object) -> str:
    r"""Return JSON that may stand in a script element: "<" is escaped, so that no text of it ends the element.

    >>> embedded(["</script>", "\udcff"])
    '["\\u003c/script>","\\udcff"]'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _policy(style: str, script: str) -> str:
    allowed = f"script-src {_digest(script)}; style-src {_digest(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _style() -> str:
    return "\n" + "".join(_source(name) for name in STYLES)


@cache
def _script() -> str:
    return "\n" + "\n".join(_scope(name) for name in modules())


def _scope(name: str) -> str:
    """Return a module as a constant that has its exports: a page of one file has no others to import.

    Its own names stay its own, as in a module.
    """
    text = _IMPORT.sub(r"const \1 = $\2;\n", _source(f"{name}.js"))
    exports = ", ".join(found[2] for found in _EXPORT.finditer(text))
    body = _EXPORT.sub(r"\1", text)
    return f"const ${name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def modules() -> list[str]:
    """Return the names of the modules, each after its imports."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for _, imported in _IMPORT.findall(_source(f"{name}.js")):
            if imported not in found:
                visit(imported)
        found[name] = None

    visit(ENTRY)
    return list(found)


def _source(name: str) -> str:
    return (SOURCES / name).read_text("utf-8")

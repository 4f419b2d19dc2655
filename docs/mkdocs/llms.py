"""The lists of the site for language models: llms.txt names all pages, llms-full.txt is their text.

The format is defined at https://llmstxt.org.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ringcast

Pages = Mapping[str, Sequence[tuple[str, str, str]]]  # of each group: address, title, what it is


def index(title: str, description: str, groups: Pages) -> str:
    """Return the list of pages."""
    lines = [f"# {title}", "", f"> {description}"]
    for group, pages in groups.items():
        lines += ["", f"## {group}", ""]
        lines += [f"- [{name}]({address}): {what}" for address, name, what in pages]
    return "\n".join(lines) + "\n"


def full(texts: Sequence[str]) -> str:
    """Return the text of pages, and of the public names with their docstrings."""
    return "\n\n".join([*texts, "# Reference", *_reference()]) + "\n"


def _reference() -> Iterator[str]:
    for name in ringcast.__all__:
        value = getattr(ringcast, name)
        yield _told(f"ringcast.{name}", value)
        if inspect.isclass(value):
            for member, found in inspect.getmembers_static(value):
                if not member.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
                    yield _told(f"ringcast.{name}.{member}", found)


def _told(path: str, value: Any) -> str:
    """Return the signature and the docstring of a public name; of a constant what it is."""
    if inspect.isfunction(value):
        path += str(inspect.signature(value))
    elif not inspect.isclass(value) and not isinstance(value, property):
        return f"## {path}\n\n{value!r}"
    return f"## {path}\n\n{inspect.getdoc(value) or ''}"

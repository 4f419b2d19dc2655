"""Have docstrings shown as what they are: examples without a heading, and arguments that methods share."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
SHARED = re.compile(r"^(Arguments that mean .*):$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Put examples into fences, and shared arguments under the heading of arguments."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = SHARED.sub(r"Args: \1:", text)

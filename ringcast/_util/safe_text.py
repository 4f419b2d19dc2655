"""Make texts of a program's objects without failing; the texts are bounded, and can be sent and printed.

`str` and `repr` of a program's object run the program's code. That may raise anything, as for an object that is only
half built, recurse for ever, or return a text that no message and no terminal takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

Kind = TypeVar("Kind")
LONGEST = 300  # characters of a value in the text of an error
_NAME = type.__dict__["__name__"].__get__  # a metaclass may have a __name__ of its own
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def safe_text(value: object, by: Callable[[Any], str] = repr, *, noun: str = "", longest: int = LONGEST) -> str:
    """Return `repr(value)`, or the text that `by` makes of it; if that fails, a text that says so.

    Args:
        value: any object.
        by: repr, str, or another function of the value.
        noun: the value's name if the text cannot be made; by default the name of its class.
        longest: number of characters that are kept, half of them from the end.

    >>> safe_text(["a"]), safe_text(ValueError("no\\x1b[1m cells"), str)
    ("['a']", 'no\\\\x1b[1m cells')
    """
    try:
        text = str.__str__(by(value))
    except BaseException:  # the program's own code raises KeyboardInterrupt and SystemExit too
        return f"<{noun or class_name(type(value))} {by.__name__}() failed>"
    return escaped(bounded(text, longest))


def class_name(kind: type) -> str:
    """Return the name of a class without running code of its metaclass.

    >>> class_name(int)
    'int'
    """
    return escaped(str.__str__(_NAME(kind)))


def is_a(value: object, kinds: type[Kind] | tuple[type[Kind], ...]) -> TypeGuard[Kind]:
    """Return the result of isinstance by the type alone; isinstance would run the `__class__` of a program's object.

    >>> is_a(True, int), is_a(1, (str, bytes))
    (True, False)
    """
    return issubclass(type(value), kinds)


def bounded(text: str, longest: int) -> str:
    """Shorten a text to about `longest` of its characters, half from the beginning and half from the end.

    >>> bounded("from the first to the last", 8)
    'from … 18 characters … last'
    """
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"


def escaped(text: str) -> str:
    """Return a text with escapes in place of control characters, except newline and tab, and of lone surrogates.

    >>> escaped("\\x1b[2J \\udcff\\n")
    '\\\\x1b[2J \\\\udcff\\n'
    """
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode("utf-8")

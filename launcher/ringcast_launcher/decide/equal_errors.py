"""Show each traceback of the ranks once: equal ones together, and consequences of another rank's error in one line.

The rank that is the cause comes last, so that its traceback stands near the last line. Ranks that were only stopped by
its error (`ringcast.bootstrap.world`) have a line for each place, and so have other ranks' own errors when there is no
more room for their tracebacks, or when they are the other half of the cause: of the same mismatch or deadlock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ringcast._util.dataclass import dataclass
from ringcast.wire.error_text import inside

ROOM = 12  # lines for the errors of ranks that are not the cause
_STOPPED = re.compile(r"stopped at (?P<place>.*?): (?P<kind>\w+)(?:: .*)?")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+)')
_ERROR = re.compile(r"(?:\w+\.)*(?P<kind>\w+)(?:: .*)?")
_NAMED = re.compile(r"(?:[\w<>]+\.)*(?P<error>[A-Z]\w*(?:: .*)?)")
_SHARED = ("CollectiveMismatch", "CollectiveTimeout")  # errors for which several ranks are both cause and witness


@dataclass(frozen=True, slots=True)
class Said:
    """A text and the ranks that wrote it; if there are several, the text has no rank's own number."""

    ranks: tuple[int, ...]
    text: str


def only_stopped(text: str) -> bool:
    """Return whether a text says only at which place another rank's error stopped this rank."""
    return _STOPPED.fullmatch(text.rstrip("\n")) is not None


def told_once(texts: Mapping[int, str], cause: int | None) -> tuple[list[Said], Said | None]:
    """Return the texts to show for all ranks, in order, and apart the text of the rank `cause`; None if it has none."""
    groups = _equal(texts.items())
    named = next((said for said in groups if cause in said.ranks), None)
    shared = _kind(named.text) if named is not None and _kind(named.text) in _SHARED else ""
    short: dict[str, list[int]] = {}
    whole: list[Said] = []
    left = ROOM
    for said in groups:
        if said is named:
            continue
        lines = said.text.count("\n")
        line = _in_one_line(said.text)
        if line and (only_stopped(said.text) or lines > left or (shared and _kind(said.text) == shared)):
            short.setdefault(line, []).extend(said.ranks)
        else:
            left -= lines
            whole.append(said)
    stopped_ones = [Said(tuple(sorted(ranks)), f"{line}\n") for line, ranks in short.items()]
    return [*sorted(stopped_ones, key=lambda said: said.ranks), *whole], named


def named_error(text: str) -> str:
    """Return the line of an error that Python has printed, without its module; empty if the text has none.

    >>> named_error('  File "a.py", line 2\\n    x = = 3\\n        ^\\nSyntaxError: invalid syntax\\n')
    'SyntaxError: invalid syntax'
    """
    found = _NAMED.fullmatch(_last_line(text.splitlines()))
    return found["error"] if found else ""


def _equal(texts: Iterable[tuple[int, str]]) -> list[Said]:
    """Return the different texts in the order of their first ranks; each rank's own number counts as equal."""
    ranks: dict[str, list[int]] = {}
    for rank, text in sorted(texts):
        ranks.setdefault(_but_for(rank, text), []).append(rank)
    of = dict(texts)
    return [Said(tuple(who), text if len(who) > 1 else of[who[0]]) for text, who in ranks.items()]


def _but_for(rank: int, text: str) -> str:
    return text.replace(f": rank {rank}: ", ": ")


def _in_one_line(text: str) -> str:
    """Return in one line the place where a rank ended and the kind of error; empty if the text has neither."""
    lines = text.splitlines()
    if stopped := _STOPPED.fullmatch(lines[-1]):
        return f"stopped at {stopped['place']}: {stopped['kind']}"
    frames = [found for line in lines if (found := _FRAME.match(line)) and not inside(found["file"])]
    return f"stopped at {frames[-1]['file']}:{frames[-1]['line']}: {_kind(text)}" if frames and _kind(text) else ""


def _kind(text: str) -> str:
    """Return the kind of the error that a text ends with."""
    last = _last_line(text.splitlines())
    found = _STOPPED.fullmatch(last) or _ERROR.fullmatch(last)
    return found["kind"] if found else ""


def _last_line(lines: Sequence[str]) -> str:
    """Return the line with the error: the first one after the last frame; an error may have more lines."""
    frames = [i for i, line in enumerate(lines) if _FRAME.match(line)]
    after = lines[frames[-1] + 1 :] if frames else lines[-1:]
    return next((line for line in after if not line.startswith(" ")), "")

"""What differs between two calls that ought to match, from their texts, which is what ranks tell each other."""

from __future__ import annotations

import re

from ringcast.wire.call import OBJECT
from ringcast.wire.collective import COLLECTIVES

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_IN_PART = re.compile(r"(?P<theirs>.+), not (?P<mine>\w+)|\w+ with another (?P<aspects>[^(]+?)(?: \(.*\))?")  # a header
_WITH, _WITHOUT = " with counts, which are left out here", " without counts, which are given here"
_NAMES = "dtype|rows of shape|shape|counts|op|root|distance|algorithm|nblocks|on|ranks|dims|periods"
_FACT = re.compile(rf"(?:^|, )({_NAMES}) (?=\S)", re.DOTALL)
_CHOSEN = {"algorithm", "nblocks", "algorithm or nblocks"}  # often by ringcast, from all that is before it
_SAME_KIND = "a Python object on one side, a numpy value on the other: pass the same on all ranks, as np.int64(value)"


def differences(mine: str, theirs: str) -> str:
    """Return what differs between the texts of two calls; "" if one of them is something else.

    The text of `theirs` may be what the header of a message says of it, as `Call.difference` returns.

    >>> differences("bcast(root 0, algorithm a, nblocks 1)", "bcast(root 1, algorithm b, nblocks 1)")
    'root differs: mine 0, theirs 1'
    >>> differences("barrier()", "reduce(dtype int64, shape (3,), op SUM, root 1)")
    'the call differs: mine barrier, theirs reduce'
    >>> differences("bcast(root 0)", "bcast with another dtype and another root")
    'dtype differs, root differs'
    """
    one, other = _CALL.fullmatch(mine), _CALL.fullmatch(theirs)
    if one is None or other is None:
        return _in_part(theirs)
    if one[1] != other[1]:
        return f"the call differs: mine {one[1]}, theirs {other[1]}"
    facts, others = _facts(one[2]), _facts(other[2])
    different = [name for name in facts | others if facts.get(name) != others.get(name)]
    if "counts" in different:
        return f"counts differ: mine {facts.get('counts', 'given')}, theirs {others.get('counts', 'given')}"
    told = [name for name in different if name not in _CHOSEN] or different
    return ", ".join(_difference(one[1], name, facts.get(name, ""), others.get(name, "")) for name in told)


def _in_part(theirs: str) -> str:
    """Return what differs, as far as the header of a message says it."""
    for text, counts in ((_WITH, "mine left out, theirs given"), (_WITHOUT, "mine given, theirs left out")):
        if theirs.endswith(text):
            return f"counts differ: {counts}"
    seen = _IN_PART.fullmatch(theirs)
    if seen is None:
        return ""
    if seen["aspects"] is None:
        return f"the call differs: mine {seen['mine']}, theirs {seen['theirs']}"
    aspects = seen["aspects"].split(" and another ")
    told = [name for name in aspects if name not in _CHOSEN] or aspects
    return ", ".join(f"{name} {'differ' if ' or ' in name else 'differs'}" for name in told)


def _facts(text: str) -> dict[str, str]:
    """Return the facts of a call by their names, in the order in which it has them."""
    pieces = _FACT.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def _difference(collective: str, name: str, mine: str, theirs: str) -> str:
    advice = _advice(mine, theirs) if name == "dtype" else ""
    if name == "shape" and collective in COLLECTIVES and COLLECTIVES[collective].counts_known:
        name = "counts or shape"
    return f"{name} differs: mine {mine or 'without'}, theirs {theirs or 'without'}{advice and f' ({advice})'}"


def _advice(mine: str, theirs: str) -> str:
    """Return how values of two types become values of one."""
    if OBJECT in (mine, theirs):
        return _SAME_KIND
    kinds = {re.sub(r"\d+$|\[.*", "", dtype) for dtype in (mine, theirs)}
    if kinds in ({"U"}, {"S"}):
        widest = max(mine, theirs, key=lambda dtype: int(dtype[1:]))
        return f"convert to the same width on all ranks, as value.astype('{widest}')"
    if kinds in ({"datetime64"}, {"timedelta64"}):
        return f"convert to the same unit on all ranks, as value.astype('{mine}')"
    return ""

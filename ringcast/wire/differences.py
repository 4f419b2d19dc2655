"""Find what differs between two calls that ought to match, by the texts that ranks tell each other."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringcast.wire.call import OBJECT
from ringcast.wire.collective import COLLECTIVES

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_IN_PART = re.compile(r"(?P<theirs>.+), not (?P<mine>\w+)|\w+ with another (?P<aspects>[^(]+?)(?: \(.*\))?")  # a header
_WITH, _WITHOUT = " with counts, which are left out here", " without counts, which are given here"
_NAMES = "dtype|rows of shape|shape|counts|op|root|distance|algorithm|nblocks|on|ranks|dims|periods"
_FACT = re.compile(rf"(?:^|, )({_NAMES}) (?=\S)", re.DOTALL)
_CHOSEN = {"algorithm", "nblocks", "algorithm or nblocks"}  # often by ringcast, from all that is before it
_OF_PYTHON = {"bool": "bool", "int": "int", "uint": "int", "float": "float", "complex": "complex"}  # by numpy's kinds


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
    return ", ".join(_difference(one[1], name, facts, others) for name in told)


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
    text = ", ".join(f"{name} {'differ' if ' or ' in name else 'differs'}" for name in told)
    return text + _in_brackets(_takes_any(theirs.partition(" ")[0]) if "shape or counts" in told else "")


def _facts(text: str) -> dict[str, str]:
    """Return the facts of a call by their names, in the order in which it has them."""
    pieces = _FACT.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def advice(name: str, collective: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return in brackets what to do where a fact of two calls differs, by their other facts; "" if that is not known.

    >>> advice("shape", "allgather", {}, {}), advice("root", "reduce", {}, {})
    (' (allgatherv takes any number of rows)', '')
    """
    if name == "dtype":
        return _in_brackets(_one_type(mine, theirs))
    return _in_brackets(_takes_any(collective)) if name == "shape" else ""


def _difference(collective: str, name: str, mine: dict[str, str], theirs: dict[str, str]) -> str:
    given = collective in COLLECTIVES and COLLECTIVES[collective].counts_known
    shown = "counts or shape" if name == "shape" and given else name
    values = [facts.get(name, "") or "without" for facts in (mine, theirs)]
    text = f"{shown} differs: mine {values[0]}, theirs {values[1]}"
    return text + advice(name, collective, mine, theirs)


def _in_brackets(advice: str) -> str:
    return advice and f" ({advice})"


def _takes_any(collective: str) -> str:
    """Return which call takes data of different length, where there is one.

    >>> _takes_any("allgather"), _takes_any("allreduce")
    ('allgatherv takes any number of rows', '')
    """
    irregular = f"{collective}v"
    return f"{irregular} takes any number of rows" if irregular in COLLECTIVES else ""


def _one_type(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return how values of two types become values of one."""
    dtypes = mine.get("dtype", ""), theirs.get("dtype", "")
    if OBJECT in dtypes:
        return _one_kind(theirs if dtypes[0] == OBJECT else mine)
    kinds = set(map(_kind, dtypes))
    if kinds in ({"U"}, {"S"}):
        widest = max(dtypes, key=lambda dtype: int(dtype[1:]))
        return f"convert to the same width on all ranks, as value.astype('{widest}') or wider"
    if kinds in ({"datetime64"}, {"timedelta64"}):
        return f"convert to the same unit on all ranks, as value.astype('{dtypes[0]}')"
    return ""


def _one_kind(numpys: Mapping[str, str]) -> str:
    """Return how a Python object and a numpy value become values of one kind, by the facts of the numpy value."""
    dtype = numpys.get("dtype", "")
    instead = f"np.asarray(value, '{dtype}')"
    if numpys.get("shape") == "()" and _kind(dtype) in _OF_PYTHON:
        numpys_name = "bool_" if dtype == "bool" else dtype
        instead = f"{_OF_PYTHON[_kind(dtype)]}(value) or np.{numpys_name}(value)"
    return f"a Python object on one side, a numpy value on the other: pass {instead} on all ranks"


def _kind(dtype: str) -> str:
    return re.sub(r"\d+$|\[.*", "", dtype)

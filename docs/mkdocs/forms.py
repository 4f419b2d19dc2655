"""Have the reference show the forms of calls, which are derived at run time: the sources that it reads lack them."""

from __future__ import annotations

import inspect
from copy import copy
from pathlib import Path
from types import FunctionType
from typing import Any

import griffe

from ringcast.communicator.nonblocking import NonblockingCalls
from ringcast.communicator.persistent import PersistentCalls
from ringcast.topology.nonblocking import NonblockingNeighborCalls
from ringcast.topology.persistent import PersistentNeighborCalls

CLASSES = NonblockingCalls, PersistentCalls, NonblockingNeighborCalls, PersistentNeighborCalls


class Forms(griffe.Extension):
    """Put the forms into their classes: each is its call with another name, result and docstring."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for kind in CLASSES:
            there = pkg[f"{kind.__module__}.{kind.__name__}".removeprefix("ringcast.")]
            for place, (name, form) in enumerate(vars(kind).items()):
                if isinstance(form, FunctionType) and not name.startswith("_"):
                    there.set_member(name, _form(pkg, form, place))


def _form(pkg: griffe.Module, form: FunctionType, place: int) -> griffe.Function:
    call = inspect.unwrap(form).__code__
    source = pkg[f"{'.'.join(Path(call.co_filename).with_suffix('').parts[-2:])}.{call.co_qualname}"]
    made = copy(source)
    made.lineno = made.endlineno = place  # by which the page orders them
    made.name, made.docstring = form.__name__, griffe.Docstring(inspect.getdoc(form) or "", parent=made)
    made.parameters = griffe.Parameters(*(one for one in source.parameters if one.name != "timeout"))
    result = form.__annotations__["return"].__origin__.__name__
    made.returns = griffe.ExprSubscript(griffe.ExprName(result, parent=source.parent), source.returns)
    return made

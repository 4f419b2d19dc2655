"""Derive the other forms of a call from the method that blocks: one begins the call, the other prepares it.

A form has the arguments of its call, but for the timeout, and another result. It runs the method of the call on an
`Unmade` instead of a communicator or topology: that returns the steps of the call, which the form begins.
Type checkers cannot follow this: docs/scripts/make_stubs.py writes a stub beside each module that derives forms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from inspect import Signature, cleandoc, signature
from types import FunctionType, GenericAlias
from typing import Any, TypeVar

from ringcast._util.dataclass import dataclass
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request
from ringcast.wire.call import NOWHERE, Site

Class = TypeVar("Class", bound=type)
Way = Callable[[Any, tuple[Any, ...], dict[str, Any], Site], Any]  # self, its arguments, and the call's place


@dataclass(frozen=True)
class Form:
    """One way to make every call: the names and results of its methods, how they make the call, and their examples."""

    name: str  # of its methods, with {} for the call
    result: type
    way: str  # name of the method that gets a function for the steps of the call
    summary: str
    example: tuple[str, ...]  # instead of a line that makes the call, with {call} for the form with its arguments
    remarks: dict[str, str]  # sentences about a single call


NONBLOCKING = Form(
    "i{}",
    Request,
    "_begin",
    "Begin `{}`, and return a request for its result.",
    ("{call}.wait()",),
    {
        "send": "The program may change the value again when it has waited for the request.",
        "recv": "Only this request can be cancelled.",
    },
)
PERSISTENT = Form(
    "{}_init",
    Persistent,
    "_prepare",
    "Prepare `{}`, and return a call that can be started any number of times.",
    ("call = {call}", "call.start()", "call.wait()"),
    {"recv": "It can be cancelled while it is under way."},
)


def derived(form: Form, *calls: FunctionType) -> Callable[[Class], Class]:
    """Return a decorator that gives a class the methods of a form, one for each call."""

    def decorate(kind: Class) -> Class:
        for call in calls:
            name = form.name.format(call.__name__)
            setattr(kind, name, _form(form, call, kind, name))
        return kind

    return decorate


def calls_of(*kinds: type) -> Iterator[FunctionType]:
    """Yield the public methods that classes define themselves."""
    for kind in kinds:
        for name, value in vars(kind).items():
            if isinstance(value, FunctionType) and not name.startswith("_"):
                yield value


def renamed(name: str, like: Callable[..., Any], way: Way) -> Any:
    """Return a method that gives `way` its arguments and its place in the program, and is called and described so."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            user = sys._getframe(1)
        except ValueError:  # a C function has called it
            return way(self, args, kwargs, NOWHERE)
        return way(self, args, kwargs, (user.f_code.co_filename, user.f_lineno))

    method.__code__ = method.__code__.replace(co_name=name)  # which tracebacks and profilers show
    update_wrapper(method, like)
    method.__name__ = name
    return method


def _form(form: Form, call: FunctionType, kind: type, name: str) -> Any:
    """Return the method `name` of a class, which makes a call in another form."""
    twin = FunctionType(call.__code__, call.__globals__, name, call.__defaults__)
    twin.__kwdefaults__ = call.__kwdefaults__
    twin.__module__, twin.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"  # as errors name it
    twin.__doc__ = _docstring(form, call)
    twin.__annotations__ = {key: value for key, value in call.__annotations__.items() if key != "timeout"}
    twin.__annotations__["return"] = GenericAlias(form.result, (call.__annotations__["return"],))
    method = renamed(name, twin, _way(twin, name, getattr(kind, form.way)))
    method.__signature__ = _without_timeout(signature(twin))
    return method


def _way(twin: FunctionType, name: str, finish: Callable[..., Any]) -> Way:
    """Return a function that passes to `finish` one that makes the steps of a call from its arguments."""

    def way(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> Any:
        if "timeout" in kwargs:
            raise TypeError(f"{twin.__qualname__}() got an unexpected keyword argument 'timeout'")
        return finish(self, name, partial(twin, self._unmade, *args, **kwargs), site)

    return way


def _without_timeout(of: Signature) -> Signature:
    return of.replace(parameters=[one for one in of.parameters.values() if one.name != "timeout"])


def _docstring(form: Form, call: FunctionType) -> str:
    """Return the meaning and the cost of a call, and its example in this form."""
    name = call.__name__
    text, _, example = cleandoc(call.__doc__ or "").partition("\n\n>>> ")
    meaning, *more = text.split("\n\n")
    paragraphs = [form.summary.format(name), f"`{name}`: {meaning[:1].lower()}{meaning[1:]}"]
    paragraphs += [paragraph for paragraph in more if paragraph.startswith("Cost: ")]
    paragraphs += [form.remarks[name]] if name in form.remarks else []
    paragraphs += [f"Arguments, but for the timeout, and errors are those of `{name}`."]
    return "\n\n".join([*paragraphs, "\n".join(_example(form, name, f">>> {example}"))])


def _example(form: Form, name: str, text: str) -> Iterator[str]:
    """Yield the lines of an example, with the call made in this form."""
    for line in text.splitlines():
        if line.startswith(">>> ") and f".{name}(" in line:
            call = line.removeprefix(">>> ").replace(f".{name}(", f".{form.name.format(name)}(", 1)
            yield from (f">>> {then.format(call=call)}" for then in form.example)
        else:
            yield line

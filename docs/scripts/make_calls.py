"""Write the other forms of the calls from the blocking ones: python docs/scripts/make_calls.py.

A form has the arguments of its call but for the timeout, and the same overloads, with a request as the result, or a
persistent call. A decorator could not say that to a type checker: parameters can be dropped from a ParamSpec only at
its beginning, and overloads get lost.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RINGCAST = Path(__file__).parents[2] / "ringcast"
COMMUNICATOR, TOPOLOGY = RINGCAST / "communicator", RINGCAST / "topology"
NOTE = "# Written by docs/scripts/make_calls.py from the blocking calls: change these, and run it again.\n"


@dataclass(frozen=True)
class Form:
    """One way to make every call: names, results and examples of its methods."""

    name: str  # of its methods, with {} for the call
    result: str
    summary: str
    body: str  # with {caller}, and {steps}, or {made} and {arguments}, for the generator of the call
    example: tuple[str, ...]  # instead of a line that makes the call, with {call} for the form with its arguments
    remarks: dict[str, str]  # sentences about a single call


@dataclass(frozen=True)
class Target:
    """A file that is written: the class of one form of the calls of some classes."""

    path: Path
    form: Form
    sources: dict[Path, tuple[str, ...]]  # files, and their methods that have this form; (): all
    imports: str
    head: str  # docstring of the module, and the class up to its methods


NONBLOCKING = Form(
    "i{}",
    "Request[{}]",
    "Begin `{}`, and return a request for its result.",
    "return {caller}._begin({steps})",
    ("{call}.wait()",),
    {
        "send": "The program may change the value again when it has waited for the request.",
        "recv": "Only this request can be cancelled.",
    },
)
PERSISTENT = Form(
    "{}_init",
    "Persistent[{}]",
    "Prepare `{}`, and return a call that can be started any number of times.",
    "return {caller}._prepare(partial({made}, {arguments}))",
    ("call = {call}", "call.start()", "call.wait()"),
    {"recv": "It can be cancelled while it is under way."},
)
SOURCES = {
    COMMUNICATOR / "distribution.py": (),
    COMMUNICATOR / "exchange.py": (),
    COMMUNICATOR / "reduction.py": (),
    COMMUNICATOR / "messages.py": ("send", "recv"),
}
BETWEEN_NEIGHBORS = {
    TOPOLOGY / "neighbor_calls.py": tuple(
        f"neighbor_{name}" for name in ("allgather", "allgatherv", "alltoall", "alltoallv")
    )
}
TARGETS = [
    Target(
        COMMUNICATOR / "nonblocking.py",
        NONBLOCKING,
        SOURCES,
        "from ringcast.requests.request import Request\n",
        '''"""The nonblocking calls: each begins the call, and returns a request for its result."""


class NonblockingCalls(Calls):
    """The i-forms of the calls: `iallreduce` begins an `allreduce`, and so on.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Request`, whose
    `wait` returns the result of the call. All ranks make the same collectives in the same order; a blocking one is
    matched by its i-form. Any number of calls may be under way.
    """
''',
    ),
    Target(
        COMMUNICATOR / "persistent.py",
        PERSISTENT,
        SOURCES,
        "from functools import partial\nfrom ringcast.requests.persistent import Persistent\n",
        '''"""The persistent calls: each checks the arguments once, and returns a call to be started again and again."""


class PersistentCalls(Calls):
    """The `_init` forms of the calls, which are started later.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Persistent`. Its
    `start` begins the call with the present values of the arrays, its `wait` returns the result of the call.
    """
''',
    ),
    Target(
        TOPOLOGY / "nonblocking.py",
        NONBLOCKING,
        BETWEEN_NEIGHBORS,
        "from ringcast.topology.neighbor_calls import Comm, NeighborCalls\n",
        '''"""The nonblocking collectives between neighbours."""


class NonblockingNeighborCalls(NeighborCalls[Comm]):
    """The i-forms of the calls; see `Request`."""
''',
    ),
    Target(
        TOPOLOGY / "persistent.py",
        PERSISTENT,
        BETWEEN_NEIGHBORS,
        "from ringcast.topology.neighbor_calls import Comm, NeighborCalls\n",
        '''"""The persistent collectives between neighbours: prepared once, started again and again."""


class PersistentNeighborCalls(NeighborCalls[Comm]):
    """The `_init` forms of the calls, which are started later; see `Persistent`."""
''',
    ),
]


def text_of(target: Target) -> str:
    """Return the file as it ought to be."""
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in target.sources}
    imports = [ast.unparse(node) for module in modules.values() for node in module.body if _is_import(node)]
    docstring, _, head = target.head.partition("\n\n\n")
    methods = [
        _form(target.form, method)
        for path, names in target.sources.items()
        for method in _methods(modules[path])
        if not names or method.name in names
    ]
    start = [NOTE, docstring, "\n\n", "\n".join(dict.fromkeys(imports)), "\n", target.imports, "\n\n"]
    return _formatted("".join([*start, head, "\n", "\n".join(methods)]), target.path)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _methods(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the public methods of the classes of a file, overloads among them."""
    for kind in module.body:
        if isinstance(kind, ast.ClassDef):
            yield from (
                node for node in kind.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            )


def _form(form: Form, method: ast.FunctionDef) -> str:
    """Return the same method, or the same overload, in another form."""
    arguments = method.args
    kept = [(arg, default) for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    kept = [(arg, default) for arg, default in kept if arg.arg != "timeout"]
    arguments.kwonlyargs, arguments.kw_defaults = [arg for arg, _ in kept], [default for _, default in kept]
    assert method.returns is not None
    signature = f"def {form.name.format(method.name)}({ast.unparse(arguments)})"
    signature += f" -> {form.result.format(ast.unparse(method.returns))}:"
    if method.decorator_list:
        return _indented(f"@overload\n{signature} ...")
    *before, last = method.body[1:]
    lines = [_docstring(form, method), *map(ast.unparse, before), _body(form, last)]
    return _indented(signature) + "\n" + _indented(_indented("\n".join(lines))) + "\n"


def _body(form: Form, statement: ast.stmt) -> str:
    """Return the last statement of a form, given that of the call, as `return self._call(generator, timeout)`."""
    call = statement.value if isinstance(statement, ast.Return | ast.Expr) else None
    assert isinstance(call, ast.Call)
    steps = call.args[0]
    assert isinstance(steps, ast.Call)
    arguments = ", ".join(map(ast.unparse, steps.args))
    assert isinstance(call.func, ast.Attribute)
    return form.body.format(
        caller=ast.unparse(call.func.value), steps=ast.unparse(steps), made=ast.unparse(steps.func), arguments=arguments
    )


def _docstring(form: Form, method: ast.FunctionDef) -> str:
    """Return a short docstring, with the example of the call in this form."""
    name = method.name
    lines = [form.summary.format(name), ""]
    if name in form.remarks:
        lines += [form.remarks[name], ""]
    example = (ast.get_docstring(method) or "").partition(">>> ")
    for line in "".join(example[1:]).splitlines():
        if re.match(rf">>> .*\.{name}\(", line):
            call = line.removeprefix(">>> ").replace(f".{name}(", f".{form.name.format(name)}(", 1)
            lines += [f">>> {then.format(call=call)}" for then in form.example]
        else:
            lines.append(line)
    return '"""' + "\n".join(lines) + '\n"""'


def _indented(text: str) -> str:
    return re.sub(r"^(?=.)", "    ", text, flags=re.MULTILINE)


def _formatted(text: str, path: Path) -> str:
    """Return a source as the project writes it, without the imports that it does not need."""
    for command in (["check", "--fix", "--quiet", "--select", "F401,I001"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for target in TARGETS:
        target.path.write_text(text_of(target), encoding="utf-8")

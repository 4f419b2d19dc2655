"""Write the stubs of the modules that derive forms of calls: python docs/scripts/make_stubs.py [--check].

`ringcast.requests.forms` derives the forms when ringcast is imported. Type checkers read the stubs: a form has the
arguments of its call but for the timeout, and the same overloads, with a request or a persistent call as the result. A
decorator could not say that to them: parameters can be dropped from a ParamSpec only at its beginning, and overloads
get lost. With --check nothing is written, and a stub that is out of date is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

from ringcast.requests.forms import NONBLOCKING, PERSISTENT, Form

FORMS = {
    "ringcast.communicator.nonblocking": NONBLOCKING,
    "ringcast.communicator.persistent": PERSISTENT,
    "ringcast.topology.nonblocking": NONBLOCKING,
    "ringcast.topology.persistent": PERSISTENT,
}
NOTE = "# Written by docs/scripts/make_stubs.py from the blocking calls: change these, and run it again.\n"


def path_of(module: str) -> Path:
    """Return the path of the stub of a module."""
    return Path(str(import_module(module).__file__)).with_suffix(".pyi")


def text_of(module: str) -> str:
    """Return the stub of a module as it ought to be."""
    form, path = FORMS[module], path_of(module)
    own = _parsed(path.with_suffix(".py"))
    kind = next(node for node in own.body if isinstance(node, ast.ClassDef))
    methods = [one for one in vars(vars(import_module(module))[kind.name]).values() if isinstance(one, FunctionType)]
    files = dict.fromkeys(_call_of(method).co_filename for method in methods)
    lines = [f'{NOTE}"""{ast.get_docstring(own)}"""', *_imports(*map(_parsed, files), own)]
    lines += [f"from {form.result.__module__} import {form.result.__name__}"]
    lines += [ast.unparse(node).partition(" = ")[0] for node in own.body if isinstance(node, ast.AnnAssign)]
    lines += [f"class {kind.name}({', '.join(map(ast.unparse, kind.bases))}):"]
    lines += [_indented(f'"""{ast.get_docstring(kind)}\n"""')]
    lines += [_indented(line) for method in methods for line in _declared(form, method)]
    return _formatted("\n".join(lines), path)


def _parsed(file: str | Path) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _call_of(method: FunctionType) -> CodeType:
    """Return the code of the call that a method is a form of."""
    return inspect.unwrap(method).__code__


def _imports(*modules: ast.Module) -> list[str]:
    nodes = [node for module in modules for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [*dict.fromkeys(map(ast.unparse, nodes))]


def _declared(form: Form, method: FunctionType) -> Iterator[str]:
    """Yield the declarations of a method: one for each overload of its call, the first one with the docstring."""
    text = f'"""{inspect.getdoc(method)}\n"""'
    for node in _overloads(_call_of(method)):
        yield from (f"@{ast.unparse(decorator)}" for decorator in node.decorator_list)
        yield f"def {method.__name__}({_arguments(node)}) -> {form.result.__name__}[{ast.unparse(node.returns)}]:"
        yield _indented(text or "...")
        text = ""


def _overloads(call: CodeType) -> list[ast.FunctionDef]:
    """Return the overloads of a call, or else the call itself."""
    nodes = [node for node in ast.walk(_parsed(call.co_filename)) if isinstance(node, ast.FunctionDef)]
    same = [node for node in nodes if node.name == call.co_name]
    return same[:-1] or same


def _arguments(node: ast.FunctionDef) -> str:
    """Return the arguments of a call, but for the timeout."""
    given = node.args
    kept = [n for n, argument in enumerate(given.kwonlyargs) if argument.arg != "timeout"]
    given.kwonlyargs, given.kw_defaults = [given.kwonlyargs[n] for n in kept], [given.kw_defaults[n] for n in kept]
    return ast.unparse(given)


def _indented(text: str) -> str:
    return re.sub(r"^(?=.)", "    ", text, flags=re.MULTILINE)


def _formatted(text: str, path: Path) -> str:
    """Return a stub as the project writes it, without the imports that it does not need."""
    for command in (["check", "--fix", "--quiet", "--select", "F401,I001"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Write the stubs, or name the stale ones."""
    texts = {path_of(module): text_of(module) for module in FORMS}
    old = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:] and old:
        sys.exit(f"out of date: {', '.join(path.name for path in old)}; run docs/scripts/make_stubs.py")
    for path in old:
        path.write_text(texts[path], encoding="utf-8")


if __name__ == "__main__":
    main()

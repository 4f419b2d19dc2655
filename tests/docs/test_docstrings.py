"""The public docstrings are complete, and their examples are what a world of one rank answers."""

from __future__ import annotations

import ast
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ringcast
import ringcast.communicator
import ringcast_launcher
from ringcast import errors
from ringcast.communicator import Communicator
from ringcast.ops import Op
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request
from ringcast.topology.cartesian import Grid
from ringcast.topology.graph import Topology
from ringcast.topology.neighbor_calls import NeighborCalls
from support.public import BETWEEN_NEIGHBORS, NONBLOCKING, PERSISTENT, PUBLIC

# Every docstring has a world of its own, as some end it. Those of Dask and Ray need a cluster: see their tests.
EXAMPLES = """
import doctest, importlib, itertools, sys
import numpy as np
import ringcast

def found(module):
    yield from doctest.DocTestFinder().find(module)
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            for form in vars(kind).values():  # not among the former, as another module has derived it
                if hasattr(form, "__wrapped__"):
                    yield from doctest.DocTestFinder().find(form)

runner = doctest.DocTestRunner()
tests = [[*found(importlib.import_module(name))] for name in sys.argv[1:]]
for test in itertools.chain(*tests):
    with ringcast.init() as comm:
        test.globs.update(comm=comm, np=np, ringcast=ringcast)
        runner.run(test)
results = runner.summarize()
sys.exit(results.failed > 0 or not all(any(test.examples for test in those) for those in tests))
"""
ROOMS = ringcast.communicator, ringcast.topology
MODULES = [f"{room.__name__}.{module.name}" for room in ROOMS for module in pkgutil.iter_modules(room.__path__)]
MODULES += [f"ringcast.requests.{name}" for name in ("caller", "request", "persistent")]
MODULES += [f"ringcast.{name}" for name in ("errors", "ops")]
MODULES += [f"ringcast.bootstrap.{name}" for name in ("world", "fetch", "run", "cluster.cluster")]
CALLS = ("init", "finalize", "terminal", "run", "cluster", "on_dask", "on_ray", "wait_all", "wait_any", "wait_some")
FUNCTIONS = {name: getattr(ringcast, name) for name in (*CALLS, "fetch")}
FORMS = NONBLOCKING | PERSISTENT | {name for name in BETWEEN_NEIGHBORS if not name.startswith("neighbor_")}
METHODS = {f"Communicator.{name}": value for name, value in PUBLIC.items()}
METHODS |= {
    f"{kind.__name__}.{name}": value
    for kind in (NeighborCalls, Topology, Grid, Request, Persistent, Op)
    for name, value in vars(kind).items()
    if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)) and name not in FORMS
} | {"Op": Op}
ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
}


def test_examples(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES, *MODULES],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_every_public_call_has_its_arguments_its_result_and_an_example(name: str) -> None:
    call = (FUNCTIONS | METHODS)[name]
    text = inspect.getdoc(call) or ""
    assert ">>> " in text
    if isinstance(call, property):
        return
    shared = described(Communicator, "Arguments that mean the same in all methods") if "Communicator" in name else set()
    arguments = set(inspect.signature(call).parameters) - {"self"}
    assert arguments <= described(call, "Args") | shared
    returns = inspect.signature(call).return_annotation if call is not Op else "None"
    told = "Returns:" in text or re.match(r"(Return|Whether)\b", text)
    assert told or returns == "None"


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_form_of_a_call_names_the_one_that_blocks(name: str) -> None:
    text = inspect.getdoc(getattr(Topology if "neighbor" in name else Communicator, name)) or ""
    begin, prepare = f"Begin `{name[1:]}`, and return", f"Prepare `{name.removesuffix('_init')}`, and return"
    assert text.startswith(begin if name.startswith("i") else prepare)
    assert ">>> " in text


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_its_attributes_and_an_example(name: str) -> None:
    kind = ERRORS[name]
    assert ">>> " in (inspect.getdoc(kind) or "")
    assert described(kind, "Attributes") == set(attributes(kind))


def described(item: Any, section: str) -> set[str]:
    """Return the names that a section of the docstring describes."""
    found = re.search(rf"^{section}:\n((?:    .*\n?)+)", inspect.getdoc(item) or "", re.MULTILINE)
    return set(re.findall(r"^    (\w+): ", found[1], re.MULTILINE)) if found else set()


def attributes(kind: type) -> set[str]:
    """Return the fields of a dataclass, or what the constructor of an error sets."""
    if hasattr(kind, "__dataclass_fields__"):
        return set(kind.__dataclass_fields__)
    if "__init__" not in vars(kind):
        return set()
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


OPENING = re.compile(r"(What|Who|Whose|Which|Where)\b")
STILTED = re.compile(r"\b(of which|of whom|those (that|who|of)|that of|somebody|nobody|(is|are|was|were|be) told)\b")
ALLOWED = 20  # lines with such words in all packages


def test_docstrings_are_sentences_with_a_subject() -> None:
    """A docstring names its subject by a noun: it does not begin with a question word, and has few such relatives."""
    lines = []
    for path in (path for package in (ringcast, ringcast_launcher) for path in Path(package.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                assert not OPENING.match(text), f"{path}: {text}"
                lines += [f"{path}: {line}" for line in text.splitlines() if STILTED.search(line)]
    assert len(lines) <= ALLOWED, "\n".join(lines)

"""The public docstrings are complete, and their examples are what a world of one rank answers."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import ringcast
from ringcast import errors
from ringcast.communicator import Communicator
from ringcast.ops import Op
from ringcast.requests.calls import NonblockingCalls
from ringcast.requests.request import Request

# Every docstring has a world of its own, as some end it. Those of Dask and Ray need a cluster: see their tests.
EXAMPLES = """
import doctest, importlib, sys
import numpy as np
import ringcast

module, runner = importlib.import_module(sys.argv[1]), doctest.DocTestRunner()
for test in doctest.DocTestFinder().find(module):
    with ringcast.init() as comm:
        test.globs.update(comm=comm, np=np, ringcast=ringcast)
        runner.run(test)
results = runner.summarize()
sys.exit(results.failed > 0 or results.attempted == 0)
"""
FUNCTIONS = {
    name: getattr(ringcast, name)
    for name in ("init", "finalize", "terminal", "run", "on_dask", "on_ray", "wait_all", "wait_any", "wait_some")
}
METHODS = {
    f"{kind.__name__}.{name}": value
    for kind in (Communicator, Request, Op)
    for name, value in vars(kind).items()
    if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
} | {"Op": Op}
ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
}


@pytest.mark.parametrize(
    "module",
    [
        "communicator",
        "requests.caller",
        "requests.calls",
        "requests.request",
        "errors",
        "ops",
        "bootstrap.world",
        "bootstrap.run",
    ],
)
def test_examples(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES, f"ringcast.{module}"],
        env=environment,
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


@pytest.mark.parametrize("name", [name for name in vars(NonblockingCalls) if not name.startswith("_")])
def test_every_form_that_does_not_block_names_the_one_that_does(name: str) -> None:
    text = inspect.getdoc(getattr(NonblockingCalls, name)) or ""
    assert text.startswith(f"Begin `{name[1:]}`, and return a request")
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

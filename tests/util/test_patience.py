"""Waits of the tests have limits that scale with the machine's speed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.patience import patience, slowness
from support.places import TESTS

SHORT = 5.0  # seconds: shorter waits are part of what a test does
NAMES = {"LIMIT", "PATIENCE", "ENOUGH", "UP"}
WAITS = {"run", "communicate", "wait", "wait_procs", "create_connection", "acquire"}
NOT_WAITS = {"ringcast.run"}  # whose limit the caller is told


def test_a_limit_is_never_shortened() -> None:
    assert slowness() >= 1
    assert patience(3.0) >= 3.0


def bare(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that wait for a number of seconds which does not scale."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WAITS:
            limits = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
            limits += call.args[:1] if call.func.attr == "wait" else []
            for limit in limits:
                number = limit.value if isinstance(limit, ast.Constant) else None
                named = isinstance(limit, ast.Name) and limit.id in NAMES
                if named or (isinstance(number, int | float) and number >= SHORT):
                    yield call


def test_every_wait_scales() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{call.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        if not {"programs", "on_hosts"} & set(path.parts)  # which run without what tests share
        for call in bare(ast.parse(path.read_text()))
        if ast.unparse(call.func) not in NOT_WAITS
    ]
    assert not found, "use support.patience.patience"


def test_bare_limits_are_found() -> None:
    lines = ["subprocess.run(x, timeout=60)", "event.wait(60)", "process.communicate(timeout=LIMIT)"]
    assert [len([*bare(ast.parse(line))]) for line in lines] == [1, 1, 1]
    assert not [*bare(ast.parse("event.wait(0.1); process.wait(patience(60)); event.wait()"))]

"""Random programs of messages, collectives that block or do not, and communicators of parts: all as in the model.

See `support.mixed` for what a program is, and why it is legal; `support.any_order` for the wire on which messages come
in any order.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.any_order import SHRUNK, AnyOrder
from support.jobs import Job
from support.mixed import ACTIONS, SIZES, Item, Program, random_items

RANKS = 1, 2, 3, 5, 7
FEW, MANY = 80, 2000  # programs that are tried
SLOW = 0.2  # how slow messages are: ranks that wait for them report it, and nobody may be accused

items = st.builds(
    Item,
    action=st.sampled_from([*ACTIONS]),
    comm=st.integers(0, 5),
    a=st.integers(0, 20),
    b=st.integers(0, 20),
    size=st.integers(0, len(SIZES) - 1),
    tag=st.integers(0, 3),
    way=st.integers(0, 255),
    lag=st.integers(-3, 4),
    late=st.integers(0, 5),
)
programs = st.builds(Program, st.sampled_from(RANKS), st.lists(items, max_size=25), st.integers(0, 3))
orders = st.integers(0, 2**32)


def check(program: Program, order: int, slow: float = 0.0) -> None:
    """Run a program on a wire that delivers in this order."""
    job = AnyOrder(program.size, order, slow=slow)
    for error in job.run(program.run):
        if error is not None:
            raise error
    assert not job.left_over()


@settings(SHRUNK, max_examples=FEW)
@given(programs, orders, st.sampled_from([0.0, SLOW]))
def test_programs_in_any_order_of_deliveries(program: Program, order: int, slow: float) -> None:
    check(program, order, slow)


@pytest.mark.long
@settings(SHRUNK, max_examples=MANY)
@given(programs, orders, st.sampled_from([0.0, SLOW]))
def test_many_programs_in_any_order_of_deliveries(program: Program, order: int, slow: float) -> None:
    check(program, order, slow)


@pytest.mark.long
def test_a_program_of_many_ranks() -> None:
    program = Program(33, random_items(Random(3), 80))
    check(program, 3)
    on_real_transport("threads", program)


def on_real_transport(kind: str, *programs: Program) -> None:
    job = Job(kind, programs[0].size)
    for program in programs:
        job.ask(program.run)
    assert not job.left_over()
    job.close()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", [2, 3, 5])
def test_programs_on_real_transports(kind: str, p: int) -> None:
    random = Random(f"{kind} {p}")
    on_real_transport(kind, *(Program(p, random_items(random, 20), open_) for open_ in range(4)))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("p", RANKS)
def test_many_programs_on_real_transports(kind: str, p: int) -> None:
    random = Random(f"many {kind} {p}")
    on_real_transport(kind, *(Program(p, random_items(random, 60), i) for i in range(30)))

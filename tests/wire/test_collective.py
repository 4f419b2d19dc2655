"""The table of collectives: whatever else lists collectives agrees with it, and so does the public interface."""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from typing import Any

import pytest

from ringcast import Communicator, Topology, collectives
from ringcast.algorithms import ALGORITHMS
from ringcast.analysis.postconditions import POSTCONDITIONS
from ringcast.collectives import neighbors
from ringcast.commands.bench.limits import FORMULAS
from ringcast.commands.bench.systems.workload import COMBINING
from ringcast.wire.collective import BY_BYTE, COLLECTIVES, Collective, Parts, Volume
from soak.calls import MAKERS
from support.public import METHODS

EVERY = set(COLLECTIVES)
NEIGHBORS = {facts.name for facts in COLLECTIVES.values() if facts.neighbors}
LISTED = {facts.name for facts in COLLECTIVES.values() if facts.listed}
COMBINED = {facts.name for facts in COLLECTIVES.values() if facts.combines}
IN_COLLECTIVES = {name for module in collectives.__all__ for name in vars(getattr(collectives, module))}


@pytest.mark.parametrize(
    ("where", "listed", "wanted"),
    [
        ("ringcast.algorithms.ALGORITHMS", ALGORITHMS, LISTED),
        ("ringcast.analysis.postconditions.POSTCONDITIONS", POSTCONDITIONS, LISTED),
        ("ringcast.collectives", EVERY & IN_COLLECTIVES, EVERY - NEIGHBORS),
        ("ringcast.collectives.neighbors", EVERY & set(vars(neighbors)), NEIGHBORS),
        ("ringcast.Communicator", EVERY & METHODS, EVERY - NEIGHBORS),
        ("ringcast.Topology", EVERY & set(dir(Topology)), NEIGHBORS),
        (
            "ringcast.Topology, with an i",
            {f"i{name}" for name in EVERY} & set(dir(Topology)),
            {f"i{name}" for name in NEIGHBORS},
        ),
        (
            "ringcast.Topology, with _init",
            {f"{name}_init" for name in EVERY} & set(dir(Topology)),
            {f"{name}_init" for name in NEIGHBORS},
        ),
        ("ringcast.commands.bench.limits.FORMULAS", FORMULAS, set(Volume) - {Volume.NONE}),
        ("ringcast.commands.bench.systems.workload.COMBINING", COMBINING, COMBINED | {"merge_sorted"}),
        ("tests.soak.calls.MAKERS", {maker.__name__ for maker in MAKERS} - {"agree", "allreduce_texts"}, EVERY),
    ],
)
def test_every_list_of_collectives_has_those_of_the_table(
    where: str, listed: Collection[Any], wanted: set[Any]
) -> None:
    assert not wanted - set(listed), f"{where} has no entry for these of ringcast.wire.collective.COLLECTIVES"
    assert not set(listed) - wanted, f"ringcast.wire.collective.COLLECTIVES has no entry for these of {where}"


@pytest.mark.parametrize("facts", COLLECTIVES.values(), ids=lambda facts: facts.name)
def test_calls_take_what_the_table_says(facts: Collective) -> None:
    taken = signature(getattr(Topology if facts.neighbors else Communicator, facts.name)).parameters
    assert ("root" in taken) == facts.rooted
    assert ("op" in taken) == facts.combines
    assert ("distance" in taken) == facts.distance
    assert ("algorithm" in taken) == (facts.parts is not Parts.NONE and facts.chooses)
    exchanged = facts.name == "merge_sorted"  # whose ranks tell each other the lengths
    assert ("counts" in taken) == (facts.parts is Parts.COUNTS and not exchanged)


@pytest.mark.parametrize("facts", COLLECTIVES.values(), ids=lambda facts: facts.name)
def test_what_shares_algorithms_shares_the_facts_that_they_depend_on(facts: Collective) -> None:
    owner = COLLECTIVES[facts.algorithms]
    assert owner.listed or not facts.chooses
    assert (facts.rooted, facts.combines, facts.exchanges) == (owner.rooted, owner.combines, owner.exchanges)
    assert (facts.wire_volume, facts.parts_of(7)) == (owner.wire_volume, owner.parts_of(7))


def test_bytes_of_fingerprints_stay_as_they_are() -> None:
    """A rank of another version must not take one collective for another."""
    assert {facts.name: facts.fingerprint_byte for facts in COLLECTIVES.values()} == {
        "bcast": 218,
        "reduce": 8,
        "allreduce": 135,
        "gather": 29,
        "gatherv": 191,
        "scatter": 116,
        "scatterv": 239,
        "allgather": 146,
        "allgatherv": 189,
        "reduce_scatter": 92,
        "barrier": 168,
        "sendrecv": 78,
        "scan": 174,
        "exscan": 246,
        "merge_sorted": 113,
        "alltoall": 105,
        "alltoallv": 231,
        "shift": 69,
        "neighbor_allgather": 14,
        "neighbor_allgatherv": 154,
        "neighbor_alltoall": 137,
        "neighbor_alltoallv": 123,
    }
    assert set(BY_BYTE.values()) == EVERY

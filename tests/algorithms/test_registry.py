"""The table: what it lists, and that it says clearly what cannot be done."""

import pytest

from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.wire.collective import COLLECTIVES, Parts

ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]


def test_collectives_and_names() -> None:
    assert set(ALGORITHMS) == {facts.name for facts in COLLECTIVES.values() if facts.listed}
    for collective, named in ALGORITHMS.items():
        for name, entry in named.items():
            assert (entry.collective, entry.name) == (collective, name)
            assert entry.source


@pytest.mark.parametrize("collective", sorted(ALGORITHMS))
def test_every_operator_and_every_counts_has_an_algorithm(collective: str) -> None:
    named = ALGORITHMS[collective].values()
    assert any(not (e.commutative or e.elementwise or e.exact) for e in named)
    if COLLECTIVES[collective].parts is Parts.COUNTS:
        assert any(not (e.commutative or e.elementwise or e.exact or e.equal_counts) for e in named)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no collective 'brodcast'; known are bcast, reduce, allreduce"):
        build("brodcast", "circulant", Params(2), 0)
    with pytest.raises(ValueError, match=r"no algorithm 'magic' for allreduce; known are census, circulant, doubling"):
        build("allreduce", "magic", Params(2), 0)


@pytest.mark.parametrize(
    ("collective", "algorithm", "params", "rank", "reason"),
    [
        ("bcast", "circulant", Params(0), 0, "bcast by circulant: there is no group of 0 ranks"),
        ("bcast", "circulant", Params(4), 4, "bcast by circulant: rank 4 is not one of 4 ranks"),
        ("gather", "circulant", Params(4, root=-1), 0, "gather by circulant: root -1 is not one of 4 ranks"),
        ("reduce", "circulant", Params(4, nblocks=0), 0, "reduce by circulant: cannot cut into 0 blocks"),
        ("reduce", "binomial", Params(4, nblocks=2), 0, "cannot cut into 2 blocks, it always uses one"),
        ("allgatherv", "ring", Params(3, counts=(1, 2)), 0, "allgatherv by ring: 2 counts for 3 ranks"),
        ("allgatherv", "ring", Params(2, counts=(1, -2)), 0, "allgatherv by ring: a count of -2 is negative"),
        ("allgather", "circulant", Params(2, counts=(1, 2)), 0, "allgather by circulant: all counts must be equal"),
        ("alltoall", "xor", Params(6), 0, "alltoall by xor: it needs a power of two ranks, not 6"),
        ("shift", "ring", Params(4, distance=4), 0, r"shift by ring: distance 4 is not in 0\.\.3"),
    ],
)
def test_what_cannot_be_done_is_told(collective: str, algorithm: str, params: Params, rank: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build(collective, algorithm, params, rank)

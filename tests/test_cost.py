"""The cost model: it agrees with the simulator, and ranks that know the same choose the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.cost import FORMULAS, MAX_BLOCK, NETWORKS, Network, best_nblocks, choose, predict
from ringcast.schedules import ALGORITHMS, Params, build
from ringcast.simulate import simulate

TCP = NETWORKS["tcp"]
WIRE = Network(alpha=1.0, beta=0.01, gamma=0.0, frame=0.0)


def test_every_algorithm_has_a_formula() -> None:
    assert set(FORMULAS) == {(collective, name) for collective, named in ALGORITHMS.items() for name in named}


@pytest.mark.parametrize("key", FORMULAS, ids="-".join)
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 17, 33])
def test_prediction_is_the_simulated_time_for_equal_slots(key: tuple[str, str], p: int) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    params = Params(p, root=p // 2, nblocks=4 if entry.blocks else 1)
    schedules = [build(*key, params, r) for r in range(p)]
    nslots = sum(schedules[0].parts)
    time = simulate(schedules, [10] * nslots, alpha=WIRE.alpha, beta=WIRE.beta).time
    assert predict(*key, params, 10 * nslots, WIRE) == pytest.approx(time)


@given(counts=st.lists(st.integers(0, 20), min_size=2, max_size=12).map(tuple), n=st.integers(1, 6))
def test_prediction_bounds_the_simulated_time_of_uneven_parts(counts: tuple[int, ...], n: int) -> None:
    p = len(counts)
    for name, entry in ALGORITHMS["allgatherv"].items():
        params = Params(p, nblocks=n if entry.blocks else 1, counts=counts)
        schedules = [build("allgatherv", name, params, r) for r in range(p)]
        slots = [
            (b + 1) * c // blocks - b * c // blocks
            for c, blocks in zip(counts, schedules[0].parts, strict=True)
            for b in range(blocks)
        ]
        time = simulate(schedules, slots, alpha=1.0, beta=0.01).time
        rounding = 0.01 * len(schedules[0]) * p  # a message may have one byte more of each contributor
        assert time <= predict("allgatherv", name, params, sum(counts), WIRE) + rounding


@given(
    size=st.integers(3, 2000),
    nbytes=st.integers(1, 10**9),
    limit=st.integers(1, 10**6),
)
def test_best_nblocks_is_best(size: int, nbytes: int, limit: int) -> None:
    def seconds(n: int) -> float:
        q = (size - 1).bit_length()
        return (n - 1 + q) * (TCP.alpha + TCP.frame + TCP.beta * nbytes / n)

    n = best_nblocks(size, nbytes, TCP, limit=limit)
    assert 1 <= n <= limit
    near = [other for other in (n - 1, n + 1) if 1 <= other <= limit]
    assert seconds(n) <= min(map(seconds, near), default=seconds(n)) * 1.1


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33])
def test_nothing_to_send_is_one_block(size: int) -> None:
    for collective in ALGORITHMS:
        assert choose(collective, size=size, nbytes=0, network=TCP)[1] == 1


@given(
    collective=st.sampled_from(sorted(ALGORITHMS)),
    size=st.integers(1, 40),
    nbytes=st.integers(0, 10**8),
    counts=st.none() | st.randoms(use_true_random=False),
    commutative=st.booleans(),
    elementwise=st.booleans(),
    exact=st.booleans(),
    network=st.sampled_from(list(NETWORKS.values())),
)
def test_what_is_chosen_can_be_built_and_is_permitted(
    collective, size, nbytes, counts, commutative, elementwise, exact, network
) -> None:
    known = (
        tuple(counts.choice((0, 1, 50, 1000)) for _ in range(size))
        if counts and collective in ("allgatherv", "reduce_scatter")
        else ()
    )
    traits = {"commutative": commutative, "elementwise": elementwise, "exact": exact}
    name, nblocks = choose(collective, size=size, nbytes=nbytes, network=network, counts=known, itemsize=8, **traits)
    build(collective, name, Params(size, 0, nblocks, known), size - 1)
    entry = ALGORITHMS[collective][name]
    assert all(traits[trait] or not getattr(entry, trait) for trait in traits)


def test_allreduce_by_size_and_operator() -> None:
    assert choose("allreduce", size=33, nbytes=8, network=TCP)[0] == "census"
    assert choose("allreduce", size=33, nbytes=8, network=TCP, exact=False)[0] == "doubling"
    assert choose("allreduce", size=33, nbytes=10**7, network=TCP, exact=False)[0] == "circulant"
    assert choose("allreduce", size=33, nbytes=10**7, network=TCP, commutative=False)[0] == "doubling"
    assert choose("allreduce", size=33, nbytes=10**7, network=TCP, elementwise=False, exact=False)[0] == "doubling"
    assert choose("reduce", size=33, nbytes=10**7, network=TCP, commutative=False) == ("binomial", 1)
    assert choose("reduce_scatter", size=33, nbytes=10**7, network=TCP, elementwise=False) == ("whole", 1)


def test_uneven_parts_are_cut() -> None:
    spike = (10**6, *(1,) * 35)
    assert choose("allgatherv", size=36, nbytes=8 * 10**7, network=TCP, counts=spike, itemsize=8)[1] > 1
    assert choose("allgatherv", size=36, nbytes=36 * 8, network=TCP, counts=(1,) * 36, itemsize=8) == ("circulant", 1)


@pytest.mark.parametrize("nbytes", [10**3, 10**6, 10**8])
def test_blocks_are_neither_huge_nor_less_than_an_element(nbytes: int) -> None:
    _, n = choose("bcast", size=8, nbytes=nbytes, network=TCP, itemsize=8)
    assert nbytes / n <= MAX_BLOCK
    assert choose("bcast", size=8, nbytes=nbytes, network=TCP, itemsize=nbytes) == ("circulant", 1)


def test_unknown_collective() -> None:
    with pytest.raises(ValueError, match="no collective 'sum'"):
        choose("sum", size=2, nbytes=1, network=TCP)

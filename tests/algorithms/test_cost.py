"""The cost model: it agrees with the simulator and the schedules, and ranks that know the same choose the same."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringcast.algorithms import ALGORITHMS, CallFacts, Params, build
from ringcast.algorithms.block_rules import best_nblocks
from ringcast.algorithms.cost import MAX_BLOCK, choose, granted, predict
from ringcast.algorithms.load import KNEE, Call
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.analysis.simulate import simulate
from ringcast.collectives.explain import Explanation
from ringcast.communicator import Communicator
from ringcast.wire.header import EAGER_LIMIT
from support.cases import each
from support.jobs import Job

TCP = NETWORKS["tcp"]
WIRE = Network(alpha=1.0, beta=0.01, gamma=0.0, frame=0.0)
NOTHING = Network(alpha=0.0, beta=0.0, gamma=0.0, frame=0.0)
KEYS = [(collective, name) for collective, named in ALGORITHMS.items() for name in named]
EVERY = pytest.mark.parametrize("key", KEYS, ids="-".join)
SIZES = each("p", [1, 2, 3, 5, 8, 33])
SLOTS = 100, 9_000, 17_000, 20_000, 50_000, EAGER_LIMIT + 1, 100_000  # bytes
P = 5


def largest_messages(key: tuple[str, str], params: Params, slots: Sequence[int]) -> list[int]:
    """Return the bytes of the largest message of each round, from the schedules of all ranks."""
    schedules = [build(*key, params, r) for r in range(params.size)]
    rounds = range(max(map(len, schedules)))
    sent = [[s[i].send for s in schedules if i < len(s) and s[i].send_to is not None] for i in rounds]
    return [max(sum(slots[slot] for slot in slots_of) for slots_of in messages) for messages in sent if messages]


@EVERY
@each("p", [1, 2, 3, 5, 8, 17, 33])
def test_prediction_is_the_simulated_time_for_equal_slots(key: tuple[str, str], p: int) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    params = Params(p, root=p // 2, nblocks=4 if entry.blocks else 1, distance=p // 2)
    if entry.fits(params):
        return
    schedules = [build(*key, params, r) for r in range(p)]
    nslots = sum(schedules[0].parts)
    time = simulate(schedules, [10] * nslots, alpha=WIRE.alpha, beta=WIRE.beta).time
    assert predict(*key, params, 10 * nslots, WIRE) == pytest.approx(time)


@EVERY
@SIZES
def test_each_constant_counts_what_is_in_the_schedules(key: tuple[str, str], p: int) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    params = Params(p, root=p // 2, nblocks=4 if entry.blocks else 1, distance=p // 2)
    if entry.fits(params):
        return
    schedule = build(*key, params, 0)
    number = sum(schedule.parts)
    pieces = largest_messages(key, params, [1] * schedule.nslots)
    for slot in SLOTS:
        messages, nbytes = [slot * n for n in pieces], slot * number
        told = {
            name: predict(*key, params, nbytes, replace(NOTHING, **{name: 1.0}))
            for name in ("alpha", "beta", "beta_long", "link_beta", "grant")
        }
        assert told["alpha"] == len(messages)
        assert told["beta"] == sum(messages)
        assert told["grant"] == len(messages) * granted(*key, params, nbytes)
        assert told["link_beta"] == max(sum(messages) - KNEE, 0)
        excess = sum(max(message - KNEE, 0) for message in messages)
        assert told["beta_long"] == excess, f"{slot=}"


@given(
    counts=st.lists(st.integers(0, 60_000), min_size=2, max_size=12).map(tuple),
    n=st.integers(1, 6),
    name=st.sampled_from(sorted(ALGORITHMS["allgatherv"])),
)
def test_constants_of_bytes_bound_what_uneven_parts_take(counts: tuple[int, ...], n: int, name: str) -> None:
    key = "allgatherv", name
    params = Params(len(counts), nblocks=n if ALGORITHMS["allgatherv"][name].blocks else 1, counts=counts)
    parts = build(*key, params, 0).parts
    slots = [
        (b + 1) * c // blocks - b * c // blocks for c, blocks in zip(counts, parts, strict=True) for b in range(blocks)
    ]
    messages = largest_messages(key, params, slots)
    rounding = len(messages) * len(counts)  # a message may have one byte more of each contributor
    excess = sum(max(message - KNEE, 0) for message in messages)
    assert sum(messages) <= predict(*key, params, sum(counts), replace(NOTHING, beta=1.0)) + rounding
    assert excess <= predict(*key, params, sum(counts), replace(NOTHING, beta_long=1.0)) + rounding


@EVERY
@given(p=st.integers(1, 40), n=st.integers(1, 9), nbytes=st.integers(0, EAGER_LIMIT), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_what_fits_into_one_eager_message_is_not_granted(
    key: tuple[str, str], p: int, n: int, nbytes: int, seed: int
) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    counts = () if entry.equal_counts else tuple(np.random.default_rng(seed).integers(0, 9, p).tolist())
    twice = key[1] in ("dissemination", "ordered_census")  # their messages may have parts twice, or two values
    assert not granted(*key, Params(p, seed % p, n if entry.blocks else 1, counts), nbytes // (1 + twice))


@EVERY
@SIZES
def test_messages_that_are_not_eager_are_granted(key: tuple[str, str], p: int) -> None:
    limit = EAGER_LIMIT
    entry = ALGORITHMS[key[0]][key[1]]
    for n in (1, 2, 9) if entry.blocks else (1,):
        params = Params(p, root=p // 2, nblocks=n, distance=p // 2)
        if entry.fits(params):
            return
        schedule = build(*key, params, 0)
        number = sum(schedule.parts)
        largest = max(largest_messages(key, params, [1] * schedule.nslots), default=0)
        for slot in SLOTS:
            assert granted(*key, params, slot * number) or slot * largest <= limit, f"{n=} {slot=}"


@given(counts=st.lists(st.integers(0, 60_000), min_size=2, max_size=12).map(tuple))
def test_uneven_parts_that_are_not_eager_are_granted(counts: tuple[int, ...]) -> None:
    for name in ALGORITHMS["allgatherv"]:
        params = Params(len(counts), counts=counts)
        largest = max(largest_messages(("allgatherv", name), params, counts), default=0)
        assert granted("allgatherv", name, params, sum(counts)) or largest <= EAGER_LIMIT


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
        return (n - 1 + q) * (TCP.alpha + TCP.grant + TCP.frame + TCP.beta * nbytes / n)

    n = best_nblocks(size, nbytes, TCP, limit=limit)
    assert 1 <= n <= limit
    near = [other for other in (n - 1, n + 1) if 1 <= other <= limit]
    assert seconds(n) <= min(map(seconds, near), default=seconds(n)) * (1 + 1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33])
def test_nothing_to_send_is_one_block(size: int) -> None:
    for collective in ALGORITHMS:
        assert choose(collective, CallFacts(size=size, nbytes=0), TCP)[1] == 1


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
    name, nblocks = choose(collective, CallFacts(size=size, nbytes=nbytes, counts=known, itemsize=8, **traits), network)
    build(collective, name, Params(size, 0, nblocks, known), size - 1)
    entry = ALGORITHMS[collective][name]
    assert all(traits[trait] or not getattr(entry, trait) for trait in traits)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a network whose rounds and bytes are such as there are, and whose other constants are a part of them."""
    alpha, beta = 10 ** draw(st.floats(-6, -2)), 10 ** draw(st.floats(-10, -6))
    gamma, frame, grant, stream, wire = (draw(st.just(0.0) | st.floats(0.01, 1)) for _ in range(5))
    return Network(alpha, beta, gamma * beta, frame * alpha, grant * alpha, stream * beta, 3 * wire * beta)


@given(
    collective=st.sampled_from(sorted(ALGORITHMS)),
    size=st.integers(1, 40),
    items=st.integers(1, 10**7),
    uneven=st.none() | st.randoms(use_true_random=False),
    network=networks() | st.sampled_from(list(NETWORKS.values())),
)
def test_more_data_takes_no_less_time(
    collective: str, size: int, items: int, uneven: Random | None, network: Network
) -> None:
    counts: tuple[int, ...] = ()
    if uneven and collective in ("allgatherv", "reduce_scatter"):
        counts = tuple(uneven.choice((0, 0, 1, 50, 1000, 10**6)) for _ in range(size))

    def seconds(nbytes: int) -> float:
        name, n = choose(collective, CallFacts(size=size, nbytes=nbytes, counts=counts, itemsize=8), network)
        return predict(collective, name, Params(size, 0, n, counts), nbytes, network)

    assert seconds(8 * items) <= seconds(8 * (items + items // 2)) * 1.01  # blocks are rounded up


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    job = Job("threads", P)
    yield job
    job.close()


@pytest.mark.parametrize("collective", ["allgatherv", "gatherv", "scatterv", "reduce_scatter"])
@given(counts=st.lists(st.integers(0, 9) | st.integers(0, 10**5), min_size=P, max_size=P), root=st.integers(0, P - 1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_ranks_choose_alike_for_any_counts(job: Job, collective: str, counts: list[int], root: int) -> None:
    def ask(comm: Communicator) -> Explanation:
        choose.cache_clear()  # every rank is to compute for itself
        comm._group.plans.clear()
        rows = sum(counts) if collective in ("scatterv", "reduce_scatter") else counts[comm.rank]
        return comm.explain(collective, np.empty(rows), counts=counts, root=root)

    first, *others = job.ask(ask)
    assert others == [first] * (P - 1)
    assert job.ask(lambda comm: comm.explain(collective, counts=counts, root=root)) == [first] * P


def test_when_nothing_fits_each_algorithm_says_why() -> None:
    with pytest.raises(ValueError, match=r"^gather: no algorithm fits: circulant: it does not cut into blocks(;|$)"):
        choose("gather", CallFacts(size=4, nbytes=8), TCP, nblocks=3)
    reasons = "binomial: it does not cut into blocks"
    with pytest.raises(ValueError, match=f"fits: circulant: it needs a commutative operator; {reasons}(;|$)"):
        choose("reduce", CallFacts(size=4, nbytes=8, commutative=False), TCP, nblocks=3)


def test_allreduce_by_size_and_operator() -> None:
    assert choose("allreduce", CallFacts(size=33, nbytes=8), TCP)[0] == "census"
    assert choose("allreduce", CallFacts(size=33, nbytes=8, exact=False), TCP)[0] == "doubling"
    assert choose("allreduce", CallFacts(size=33, nbytes=10**7, exact=False), TCP)[0] == "circulant"
    assert choose("allreduce", CallFacts(size=33, nbytes=10**7, commutative=False), TCP)[0] == "dual_root"
    assert choose("allreduce", CallFacts(size=32, nbytes=10**7, commutative=False), TCP)[0] == "rabenseifner"
    assert choose("allreduce", CallFacts(size=33, nbytes=8, commutative=False), TCP)[0] == "ordered_census"
    ordered = {"commutative": False, "elementwise": False, "exact": False}
    for nbytes in 8, 10**7:
        assert choose("allreduce", CallFacts(size=33, nbytes=nbytes, **ordered), TCP)[0] == "doubling"
    assert choose("allreduce", CallFacts(size=33, nbytes=10**7, elementwise=False, exact=False), TCP)[0] == "doubling"
    assert choose("reduce", CallFacts(size=33, nbytes=10**7, commutative=False), TCP) == ("binomial", 1)
    assert choose("reduce_scatter", CallFacts(size=33, nbytes=10**7, elementwise=False), TCP) == ("whole", 1)


@pytest.mark.parametrize("network", NETWORKS.values())
def test_alltoall_by_size(network: Network) -> None:
    for size in 4, 5, 8, 33, 64, 100:
        for one in 0, 1, 100:
            assert choose("alltoall", CallFacts(size=size, nbytes=2 * size * one), network)[0] == "circulant"
        assert choose("alltoall", CallFacts(size=size, nbytes=2 * size * 10**6), network)[0] == "linear"
    for size in 8, 33:
        assert choose("alltoallv", CallFacts(size=size, nbytes=0), network)[0] == "scattered"
        for nbytes in 0, 10**8:
            assert choose("shift", CallFacts(size=size, nbytes=nbytes, distance=5), network)[0] == "direct"


def test_the_textbook_wins_where_it_was_measured_to_win() -> None:
    ipc = NETWORKS["ipc"]
    assert choose("bcast", CallFacts(size=4, nbytes=10**7), ipc)[0] == "scatter_allgather"
    assert choose("bcast", CallFacts(size=8, nbytes=10**7), ipc)[0] == "circulant"
    assert choose("scatter", CallFacts(size=5, nbytes=3 * 10**5), ipc)[0] == "linear"
    assert choose("allgather", CallFacts(size=25, nbytes=3 * 10**5), ipc)[0] == "mesh"
    for name in "bcast", "reduce":
        assert choose(name, CallFacts(size=2, nbytes=10**7), NETWORKS["threads"])[0] == "circulant"


@EVERY
@SIZES
def test_the_work_of_all_ranks_is_what_their_schedules_send(key: tuple[str, str], p: int) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    params = Params(p, root=p // 2, nblocks=4 if entry.blocks else 1, distance=p // 2)
    if entry.fits(params):
        return
    schedules = [build(*key, params, r) for r in range(p)]
    parts = schedules[0].parts
    slots = [10] * sum(parts) + [10] * len(schedules[0].scratch)
    load = entry.load(Call(params, 10 * sum(parts), entry.rounds(params)))
    sent = sum(slots[slot] for s in schedules for step in s if step.send_to is not None for slot in step.send)
    assert sent == load.work if load.work else sent <= p * load.volume


@EVERY
@each("p", [2, 5, 8])
@each("ranks_per_cpu", [1.5, 4.0, 100.0])
def test_where_ranks_share_processors_one_that_sends_nothing_saves_time(
    key: tuple[str, str], p: int, ranks_per_cpu: float
) -> None:
    entry = ALGORITHMS[key[0]][key[1]]
    params = Params(p, root=p // 2, nblocks=4 if entry.blocks else 1, distance=p // 2)
    if entry.fits(params):
        return
    alone, shared = (predict(*key, params, 10**6, replace(WIRE, ranks_per_cpu=each)) for each in (1.0, ranks_per_cpu))
    if entry.load(Call(params, 10**6, entry.rounds(params))).work:
        assert shared <= alone
    else:
        assert shared == pytest.approx(alone)


def test_blocks_that_keep_all_ranks_busy_gain_nothing_where_ranks_share_processors() -> None:
    for size in 3, 4, 8, 16, 64:
        shared = replace(NETWORKS["shm"], ranks_per_cpu=size / 2)
        for nbytes in 10**6, 10**7, 10**8:
            assert choose("bcast", CallFacts(size, nbytes), shared) == ("circulant", 1)
            assert choose("bcast", CallFacts(size, nbytes), NETWORKS["shm"]) != ("circulant", 1)


def test_what_is_equal_but_for_rounding_is_the_first_in_the_table() -> None:
    for network in NETWORKS.values():
        assert choose("allgather", CallFacts(size=9, nbytes=3 * 10**6), network)[0] == "circulant"
        assert choose("scatter", CallFacts(size=20, nbytes=10**6), network)[0] == "circulant"


def test_a_root_that_is_no_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="scatter: root 4 is not one of 4 ranks"):
        choose("scatter", CallFacts(size=4, nbytes=8, root=4), TCP)


def test_uneven_parts_are_cut() -> None:
    spike = (10**6, *(1,) * 35)
    assert choose("allgatherv", CallFacts(size=36, nbytes=8 * 10**7, counts=spike, itemsize=8), TCP)[1] > 1
    assert choose("allgatherv", CallFacts(size=36, nbytes=36 * 8, counts=(1,) * 36, itemsize=8), TCP) == (
        "circulant",
        1,
    )


@pytest.mark.parametrize("nbytes", [10**3, 10**6, 10**8])
def test_blocks_are_neither_huge_nor_less_than_an_element(nbytes: int) -> None:
    _, n = choose("bcast", CallFacts(size=8, nbytes=nbytes, itemsize=8), TCP)
    assert nbytes / n <= MAX_BLOCK
    assert choose("bcast", CallFacts(size=8, nbytes=nbytes, itemsize=nbytes), TCP, algorithm="circulant")[1] == 1


def test_unknown_collective() -> None:
    with pytest.raises(ValueError, match="no collective 'sum'"):
        choose("sum", CallFacts(size=2, nbytes=1), TCP)


def test_blocks_of_nothing_are_few() -> None:
    assert choose("bcast", CallFacts(size=4, nbytes=8), TCP, nblocks=1000) == ("circulant", 1000)
    assert choose("bcast", CallFacts(size=4, nbytes=8 * 5000, itemsize=8), TCP, nblocks=5000) == ("circulant", 5000)
    with pytest.raises(ValueError, match=r"^cannot cut 1 items into 1001 blocks"):
        choose("bcast", CallFacts(size=4, nbytes=8, itemsize=8), TCP, nblocks=1001)


def test_of_what_the_wire_makes_equal_the_cheaper_is_chosen() -> None:
    slow = Network(alpha=1e-3, beta=2e-8, gamma=0, frame=0, grant=1e-3, beta_long=9e-8, link_beta=8.4e-8)
    half = (10**6,) * 4 + (0,) * 4
    assert choose("allgatherv", CallFacts(size=8, nbytes=10**7, counts=half), slow) == ("pipelined_ring", 39)
    assert choose("allgatherv", CallFacts(size=8, nbytes=10**7), slow) == ("pipelined_ring", 20)


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_no_formula_takes_quadratic_time(collective: str) -> None:
    p = 50_000
    started = time.process_time()
    choose(collective, CallFacts(size=p, nbytes=8 * p, itemsize=8), TCP)
    assert time.process_time() - started < 20  # quadratic ones took minutes

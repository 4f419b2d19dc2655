"""The rules of thumb for numbers of blocks, beside the model."""

import doctest
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.algorithms import block_rules
from ringcast.algorithms.block_rules import best_nblocks
from ringcast.algorithms.network import NETWORKS


def test_examples() -> None:
    result = doctest.testmod(block_rules)
    assert result.attempted
    assert not result.failed


@given(size=st.integers(3, 5000), nbytes=st.integers(0, 10**9), kind=st.sampled_from(sorted(NETWORKS)))
def test_with_the_constant_of_the_network_the_rules_are_the_model(size: int, nbytes: int, kind: str) -> None:
    network, q = NETWORKS[kind], (size - 1).bit_length()
    n = best_nblocks(size, nbytes, network, limit=max(nbytes, 1))
    f = block_rules.constant(network)
    for rule in block_rules.nblocks_by_f, block_rules.nblocks_by_g:
        assert abs(rule(size, nbytes, f) - n * sqrt(q / (q - 1))) <= 2, rule  # the rules have q where the model has q-1


@pytest.mark.parametrize("nbytes", [0, 1, 7, 10**6])
@pytest.mark.parametrize("size", [1, 2, 3, 36])
def test_there_is_always_a_block(size: int, nbytes: int) -> None:
    assert min(block_rules.beside_the_model(size, nbytes, NETWORKS["tcp"]).values()) >= 1


def test_what_a_rank_alone_would_cut() -> None:
    assert block_rules.block_size_by_f(1, 1000, 80) == 1000
    assert block_rules.nblocks_by_f(1, 1000, 80) == block_rules.nblocks_by_g(1, 1000, 40) == 1

"""Samplers that take a pool: with the same seed their chains are those of a serial run, bit for bit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ringcast
from support import needs

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def pool() -> Iterator[ringcast.Pool]:
    with ringcast.Pool(2) as made:
        yield made


def log_probability(x: np.ndarray, scale: np.ndarray) -> float:
    return -0.5 * float(np.sum((x / scale) ** 2))


SCALE = np.linspace(1, 2, 3)


def gaussian(x: np.ndarray) -> float:
    return log_probability(x, SCALE)


def test_emcee(pool: ringcast.Pool) -> None:
    needs.package("emcee")
    import emcee

    chains = []
    for each in (None, pool):
        start = np.random.default_rng(1).normal(size=(16, 3))
        np.random.seed(7)
        sampler = emcee.EnsembleSampler(16, 3, log_probability, args=(SCALE,), pool=each)
        sampler.run_mcmc(start, 40)
        chains.append(sampler.get_chain())
    assert np.array_equal(*chains)


def test_dynesty(pool: ringcast.Pool) -> None:
    needs.package("dynesty")
    import dynesty

    results: list[Any] = []
    for options in ({}, {"pool": pool, "queue_size": 2}):
        # A queue lets a sampler draw ahead: serially it is of the same length.
        sampler = dynesty.NestedSampler(
            gaussian,
            unit_to_prior,
            3,
            nlive=60,
            rstate=np.random.default_rng(5),
            **(options or {"pool": Serial(), "queue_size": 2}),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler.run_nested(maxiter=150, print_progress=False)
        results.append(sampler.results)
    assert np.array_equal(results[0]["samples"], results[1]["samples"])
    assert np.array_equal(results[0]["logz"], results[1]["logz"])


class Serial:
    """A pool that is none."""

    def map(self, fn: Any, items: Any) -> list[Any]:
        return [fn(item) for item in items]


def unit_to_prior(u: np.ndarray) -> np.ndarray:
    return 10 * u - 5


def test_zeus(pool: ringcast.Pool) -> None:
    needs.package("zeus")
    import zeus

    chains = []
    for each in (None, pool):
        start = np.random.default_rng(1).normal(size=(12, 3))
        np.random.seed(7)
        random.seed(7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = zeus.EnsembleSampler(12, 3, gaussian, pool=each, verbose=False)
            sampler.run_mcmc(start, 30, progress=False)
        chains.append(sampler.get_chain())
    assert np.array_equal(*chains)

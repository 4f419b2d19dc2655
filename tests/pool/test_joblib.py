"""joblib and scikit-learn over a pool."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringcast
from support import needs
from support.patience import patience

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    needs.package("joblib")
    import ringcast.joblib

    yield
    for each in ringcast.joblib._kept.values():
        each.shutdown()
    ringcast.joblib._kept.clear()


def square(x: float) -> float:
    return x * x


def test_calls_run_in_workers_which_the_next_call_takes_again() -> None:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("ringcast", n_jobs=2):
        assert Parallel()(delayed(square)(x) for x in range(20)) == [x * x for x in range(20)]
        pids = {*Parallel()(delayed(os.getpid)() for _ in range(20))}
        assert os.getpid() not in pids
        assert {*Parallel()(delayed(os.getpid)() for _ in range(20))} & pids
        assert list(Parallel(return_as="generator")(delayed(square)(x) for x in [1, 2])) == [1, 4]
        with pytest.raises(ZeroDivisionError):
            Parallel()(delayed(divmod)(1, x) for x in [1, 0, 2])
        assert Parallel()(delayed(square)(x) for x in [3]) == [9]


def test_an_error_ends_the_batches_that_run() -> None:
    from joblib import Parallel, delayed, parallel_config

    def work(x: int) -> None:
        if x:
            time.sleep(1000)
        raise ValueError("first")

    begin = time.monotonic()
    with parallel_config("ringcast", n_jobs=2):
        with pytest.raises(ValueError, match="first"):
            Parallel(batch_size=1, pre_dispatch="all")(delayed(work)(x) for x in [1, 0])
        assert Parallel()(delayed(square)(x) for x in [3]) == [9]
    assert time.monotonic() - begin < patience(60)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_an_error_of_one_thread_is_none_of_another_ones_call(tmp_path: Path) -> None:
    from joblib import Parallel, delayed, parallel_config

    import ringcast.joblib

    begun, asleep, go = (tmp_path / name for name in ("begun", "asleep", "go"))

    def good(x: int) -> int:
        begun.touch()
        wait_for(go)
        return x

    def bad(x: int) -> None:
        if x:
            asleep.touch()
            time.sleep(1000)
        wait_for(asleep)
        raise KeyError("mine")

    def call(function: Callable[[int], Any], n: int) -> Any:
        with parallel_config("ringcast", n_jobs=3):
            return Parallel(batch_size=1)(delayed(function)(x) for x in range(n))

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(call, good, 1)
        wait_for(begun)
        try:
            with pytest.raises(KeyError, match="mine"):
                call(bad, 2)
            assert call(square, 3) == [0, 1, 4]
        finally:
            go.touch()
        assert found.result() == [0]
    assert not ringcast.joblib._users
    assert len(ringcast.joblib._kept) == 1


def test_a_call_of_one_job_needs_no_pool_and_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from joblib import Parallel, delayed, parallel_config

    import ringcast.joblib

    made: list[ringcast.Pool] = []

    def pool(_: None, **options: Any) -> ringcast.Pool:
        made.append(ringcast.Pool(2))
        return made[-1]

    monkeypatch.setattr(ringcast.joblib, "Pool", pool)
    with parallel_config("ringcast", hosts="h0,h1"):
        for n in (None, 1, None):
            assert Parallel(n_jobs=n)(delayed(square)(x) for x in range(3)) == [0, 1, 4]
        assert Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2)) == [os.getpid()] * 2
    assert len(made) == 1
    assert made[0].usable


def test_a_pool_of_the_program_is_used_as_it_is() -> None:
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    with ringcast.Pool(2) as pool:
        pids = {*pool.submit_ranks(2, lambda comm: os.getpid()).result()}
        with parallel_config("ringcast", pool=pool):
            assert effective_n_jobs() == 2
            assert {*Parallel()(delayed(os.getpid)() for _ in range(20))} <= pids
        assert pool.usable


def test_an_initializer_is_for_one_call() -> None:
    from joblib import Parallel, delayed

    def mark(word: str) -> None:
        os.environ["MARKED"] = word

    found = Parallel(n_jobs=2, backend="ringcast", initializer=mark, initargs=("yes",))(
        delayed(os.getenv)("MARKED") for _ in range(4)
    )
    assert found == ["yes"] * 4


def test_scikit_learn_gives_what_it_gives_serially() -> None:
    needs.package("sklearn")
    from joblib import parallel_config
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV

    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 5))
    labels = (data[:, 0] + 0.3 * rng.normal(size=200) > 0).astype(int)

    def search(jobs: int) -> Any:
        forest = RandomForestClassifier(n_estimators=5, random_state=1)
        return GridSearchCV(forest, {"max_depth": [2, 3]}, cv=2, n_jobs=jobs).fit(data, labels)

    with parallel_config("ringcast"):
        found = search(2)
    expected = search(1)
    assert found.best_params_ == expected.best_params_
    assert np.array_equal(found.predict_proba(data), expected.predict_proba(data))

"""The library of the installed LightGBM, and the calls in it that are refused where a network is ours.

LightGBM trains alone, without a word, if its parameters do not speak of several machines; it waits for two hours for
machines of its own network. Its Python package calls the library by attributes of one object; three of them are
replaced once, by functions that first look whether this thread has a network of ours.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from ringcast._util.optional import how_to_install
from ringcast.errors import UsageError
from ringcast.wire.error_text import in_a_line

OLDEST = (4, 0)  # the tests ran with 4.7.0; others from here on are admitted untried
LEARNERS = {"data", "data_parallel", "voting", "voting_parallel", "feature", "feature_parallel"}

in_thread = threading.local()  # LightGBM has a network for each thread; `size` is that of ours
_lock = threading.Lock()


def load(rank: int) -> tuple[Any, str]:
    """Return LightGBM's library as its package has it, and its version.

    Raises:
        UsageError: LightGBM cannot be imported, or is too old; this thread has a network of ours.
    """
    if getattr(in_thread, "size", None) is not None:
        raise UsageError(f"rank {rank}: this thread has a network of LightGBM's already; leave its context first")
    try:
        import lightgbm
    except Exception as error:  # OSError, if it lacks a library of the system
        words = f"rank {rank}: LightGBM cannot be imported ({in_a_line(error)}); {how_to_install('lightgbm')}"
        raise UsageError(words) from None
    version: str = lightgbm.__version__
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"rank {rank}: LightGBM {version} is too old, {oldest} is needed; {how_to_install('lightgbm')}"
        )
    library = lightgbm.basic._LIB
    with _lock:
        if not isinstance(library.LGBM_NetworkInit, _Guarded):
            library.LGBM_NetworkInit = _Guarded(library.LGBM_NetworkInit, _refuse_second)
            library.LGBM_NetworkFree = _Guarded(library.LGBM_NetworkFree, _keep)
            library.LGBM_BoosterCreate = _Guarded(library.LGBM_BoosterCreate, _check_parameters)
    return library, version


class _Guarded:
    """A function of the library; in threads with a network of ours, `first` sees the call, and may answer it."""

    def __init__(self, function: Any, first: Callable[..., int | None]) -> None:
        self.function, self.first = function, first

    def __call__(self, *arguments: Any) -> Any:
        answer = None if getattr(in_thread, "size", None) is None else self.first(*arguments)
        return self.function(*arguments) if answer is None else answer


def _refuse_second(*_: object) -> None:
    raise UsageError("LightGBM has a network over a communicator here: leave out `machines`, or leave the context")


def _keep(*_: object) -> int:
    """Keep our network: a booster that had one of LightGBM's own frees the thread's when it is collected as garbage."""
    return 0


def _check_parameters(_: object, parameters: Any, *__: object) -> None:
    """Refuse a booster that would train alone."""
    given = dict(item.split("=", 1) for item in parameters.value.decode().split() if "=" in item)
    machines = given.get("num_machines", given.get("num_machine", "1"))
    learner = next(
        (given[name] for name in ("tree_learner", "tree", "tree_type", "tree_learner_type") if name in given), ""
    )
    if machines == str(in_thread.size) and (learner in LEARNERS or in_thread.size == 1):
        return
    got = f"num_machines={machines} and tree_learner={learner or 'serial'}"
    raise UsageError(
        f"LightGBM would train alone, or wait for ever, with {got}, among {in_thread.size} ranks; "
        "pass the parameters that ringcast.lightgbm.network yields: {**mine, **parameters}"
    )

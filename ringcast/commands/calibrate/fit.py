"""Fit the constants of a network to measured times.

The cost model is the larger of two sums: the time of the rounds, which is linear in the constants, and the time of the
wire for all bytes. `ringcast.algorithms.cost.predict` gives the factor of each constant in the time of a collective:
its prediction for a network where this constant is 1 and all others are 0. So the model is not repeated here.

No call is faster than the wire, so the time of the wire for a byte is the time per byte of the fastest large call. The
other constants make the sum of |ln(predicted / measured)| small over the calls that the wire does not explain, by least
squares with weights that are recomputed from the errors (iteratively reweighted least squares). A factor of two counts
equally up and down; and a few disturbed times, or rounds that do not take alpha plus bytes times beta, do not distort
the constants for all others, as plain squares would. Where the model cannot fit all samples, it should be right for
large messages, where the number of blocks matters: the weight of a sample grows slowly with its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.algorithms import Params
from ringcast.algorithms.cost import predict
from ringcast.algorithms.network import Network

_APART = "link_beta", "ranks_per_cpu"  # the first is computed directly, a job knows the second
_NAMES = tuple(field.name for field in fields(Network) if field.type == "float" and field.name not in _APART)
_LOCAL = _NAMES.index("local")
_NEEDED = ("alpha", "beta")  # 0 for one of these would mean that the measurement failed
_ITERATIONS = 60  # the weights converge much earlier
_NOISE = 0.02  # smaller relative errors count as equal
_GROWTH = 0.25  # exponent: 40 MB count ten times as much as 4 kB
_NEAR = 0.8  # of a time: where the wire predicts at least as much, it may explain all of it
_LARGE = 1 << 20  # bytes over a link that are enough to measure its rate

_Floats: TypeAlias = NDArray[np.float64]


def _network(constants: Sequence[float], link_beta: float = 0.0) -> Network:
    named: dict[str, Any] = dict(zip(_NAMES, constants, strict=True))
    return Network(**named, link_beta=link_beta)


_UNITS = (*(_network(row) for row in np.eye(len(_NAMES)).tolist()), _network([0.0] * len(_NAMES), 1.0))


@dataclass(frozen=True, slots=True)
class Sample:
    """One collective with the seconds that it took."""

    collective: str
    algorithm: str
    params: Params
    nbytes: int
    seconds: float

    def predicted(self, network: Network) -> float:
        """Return the seconds that the cost model predicts."""
        return predict(self.collective, self.algorithm, self.params, self.nbytes, network)

    def error(self, network: Network) -> float:
        """Return the error of the prediction relative to the measured time; positive if the prediction is too high."""
        return self.predicted(network) / self.seconds - 1


def fit(samples: Sequence[Sample], local: float = 0.0, ranks_per_cpu: float = 1.0) -> Network:
    """Return the constants that predict the times of `samples` best, none of them negative.

    Constants that the samples do not determine, or that would be negative, are 0; alpha and beta never are. If `local`
    is given, it is kept. `ranks_per_cpu` comes from the measured job.

    Raises:
        ValueError: there are too few samples, or their times do not grow with rounds and bytes.
    """
    seconds = np.array([sample.seconds for sample in samples])
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise ValueError("a time to fit is not a positive number of seconds")
    units = [replace(unit, ranks_per_cpu=ranks_per_cpu) for unit in _UNITS]
    factors = np.array([[sample.predicted(unit) for unit in units] for sample in samples]).reshape(-1, len(units))
    factors /= seconds[:, None]
    importance = np.array([float(sample.nbytes) for sample in samples]) ** _GROWTH
    steps, link = factors[:, :-1], factors[:, -1]
    known = steps[:, _LOCAL] * local
    if local:
        steps[:, _LOCAL] = 0.0  # takes the constant out of the fit
    large = link * seconds >= _LARGE
    link_beta = float(np.min(1 / link[large])) if large.any() else 0.0
    constants = _slopes(steps, known, link * link_beta, importance)
    constants[_LOCAL] += local
    return replace(_network(constants.tolist(), link_beta), ranks_per_cpu=ranks_per_cpu)


def _slopes(steps: _Floats, known: _Floats, floor: _Floats, importance: _Floats) -> _Floats:
    """Return the constants of the rounds; `known` is the known part of the rounds' times.

    `floor` has the predictions of the wire. All numbers are relative to the measured times.

    The calls that the wire explains are not known at first, and may oscillate: the best iteration of two starts counts.

    Raises:
        ValueError: as for `fit`.
    """
    best: tuple[float, _Floats] | None = None
    for start in (np.zeros(len(floor), bool), floor > _NEAR):
        ratio, explained = np.ones(len(floor)), start
        for _ in range(_ITERATIONS):
            weights = importance / np.sqrt(ratio * np.maximum(np.abs(np.log(ratio)), _NOISE))
            constants = _least_squares(steps[~explained], 1 - known[~explained], weights[~explained])
            if constants is None:
                break
            linear = steps @ constants + known
            ratio = np.maximum(linear, floor)
            explained = linear < floor
            error = float(np.sum(importance * np.abs(np.log(ratio))))
            if best is None or error < best[0]:
                best = error, constants
    if best is None:
        raise ValueError("the times do not grow with the number of rounds and bytes, or there are too few of them")
    return best[1]


def _least_squares(factors: _Floats, target: _Floats, weights: _Floats) -> _Floats | None:
    """Return the constants c for which `weights` times (`factors` c - `target`) has the least squares, none negative.

    None if the factors do not determine alpha and beta. The few selections of constants that may differ from 0 are
    tried; a subset of a selection with a positive solution cannot be better.
    """
    best: tuple[float, _Floats] | None = None
    needed = [i for i, name in enumerate(_NAMES) if name in _NEEDED]
    others = [i for i, name in enumerate(_NAMES) if name not in _NEEDED]
    fine: list[set[int]] = []
    for some in (some for k in range(len(others), -1, -1) for some in combinations(others, k)):
        chosen = [*needed, *some]
        if any(set(some) <= larger for larger in fine):
            continue
        positive = _positive(factors[:, chosen] * weights[:, None], weights * target)
        if positive is None:
            continue
        fine.append(set(some))
        constants = np.zeros(len(_NAMES))
        constants[chosen] = positive
        error = float(np.sum((weights * (factors @ constants - target)) ** 2))
        if best is None or error < best[0]:
            best = error, constants
    return best[1] if best else None


def _positive(factors: _Floats, target: _Floats) -> _Floats | None:
    """Return the c for which `factors` c is nearest to `target`; None if c is not positive, or not unique."""
    scale = np.linalg.norm(factors, axis=0)  # a byte takes 1e-9 s, a round 1e-4: scale both alike
    if not scale.all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(factors / scale, target, rcond=1e-6)
    constants: _Floats = solution / scale
    return constants if rank == factors.shape[1] and (constants > 0).all() else None

"""The constants of a network from measured times.

The cost model is the larger of two sums: what the rounds take, which is linear in the constants, and what the wire
takes for all bytes. The factor of each constant in the time of a collective is what `ringcast.algorithms.cost.predict`
says for a network where this constant is 1 and all others are 0: the model itself is nowhere repeated here.

No call is faster than the wire, so the wire takes for a byte what the fastest of all large calls took. The other
constants make the sum of |ln(predicted / measured)| small over the calls that the wire does not explain, by least
squares with weights that are made anew from the errors (iteratively reweighted least squares). A factor of two
counts alike up and down; and the few times that were disturbed, or for which a round is not alpha plus bytes times
beta, do not bend the constants for all others, as squares would let them. Where the model must give way, it is to be
right for large messages, in which the number of blocks matters: the weight of a sample grows slowly with its size.
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

_APART = "link_beta", "ranks_per_cpu"  # the first is found otherwise, the second is known of a job
_NAMES = tuple(field.name for field in fields(Network) if field.type == "float" and field.name not in _APART)
_LOCAL = _NAMES.index("local")
_NEEDED = ("alpha", "beta")  # a network where rounds or bytes cost nothing was not measured, but missed
_ITERATIONS = 60  # the weights stay long before
_NOISE = 0.02  # relative errors below this one are all the same
_GROWTH = 0.25  # exponent: 40 MB count ten times as much as 4 kB
_NEAR = 0.8  # of a time: where the wire predicts that much it may be all that counts
_LARGE = 1 << 20  # bytes over a link that are enough to tell what it carries

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
        """Return the seconds that the cost model says."""
        return predict(self.collective, self.algorithm, self.params, self.nbytes, network)

    def error(self, network: Network) -> float:
        """Return by how much the prediction is too high (or, below 0, too low), relative to what was measured."""
        return self.predicted(network) / self.seconds - 1


def fit(samples: Sequence[Sample], local: float = 0.0, ranks_per_cpu: float = 1.0) -> Network:
    """Return the constants that predict the times of `samples` best, none of them negative.

    Constants that these cannot tell from others, or that would be negative, are 0; alpha and beta never are. If `local`
    is given, it is kept. `ranks_per_cpu` is that of the job whose times they are.

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
        steps[:, _LOCAL] = 0.0  # so that it is not to be found
    large = link * seconds >= _LARGE
    link_beta = float(np.min(1 / link[large])) if large.any() else 0.0
    constants = _slopes(steps, known, link * link_beta, importance)
    constants[_LOCAL] += local
    return replace(_network(constants.tolist(), link_beta), ranks_per_cpu=ranks_per_cpu)


def _slopes(steps: _Floats, known: _Floats, floor: _Floats, importance: _Floats) -> _Floats:
    """Return the constants of the rounds, which take what is `known` besides.

    `floor` is what the wire predicts. All numbers are relative to the times that were measured.

    What the wire explains is not known at first, and may change to and fro: of two starts the best iteration counts.

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

    None if the factors do not tell alpha and beta apart. The selections of constants that may be other than 0 are
    tried, there are few; a part of one that will do cannot be better.
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
    """Return the c for which `factors` c is nearest to `target`; None if it is not positive, or one of many."""
    scale = np.linalg.norm(factors, axis=0)  # a byte takes 1e-9 s, a round 1e-4: one yardstick for both
    if not scale.all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(factors / scale, target, rcond=1e-6)
    constants: _Floats = solution / scale
    return constants if rank == factors.shape[1] and (constants > 0).all() else None

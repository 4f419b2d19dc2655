"""Ranks as threads of one process: for a notebook, a debugger or a test. Run it with plain `python`."""

import numpy as np
from numpy.typing import NDArray

import ringcast


def sorted_together(comm: ringcast.Communicator, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort by buckets: rank r takes the r-th range of values, however many there are, and sorts them."""
    bounds = np.linspace(int(numbers.min()), int(numbers.max()) + 1, comm.size + 1)
    low, high = float(bounds[comm.rank]), float(bounds[comm.rank + 1])
    return comm.allgatherv(np.sort(numbers[(numbers >= low) & (numbers < high)]))


numbers = np.random.default_rng(1).geometric(0.01, 10_000)
results = ringcast.run(sorted_together, 5, args=(numbers,), backend="threads")
assert all(np.array_equal(result, np.sort(numbers)) for result in results)
print(f"{len(results)} ranks agree: the median is {results[0][len(numbers) // 2]}")

"""Mean and deviation of the columns of a table whose rows are spread over the ranks.

    ringcast-launch -n 2 --profile report.html docs/scripts/profile_gallery/small_calls.py

The fault: two calls for each column. Mended: one call for all columns.
"""

import argparse

import numpy as np

import ringcast


def main() -> None:
    """Add up each table's columns over all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--tables", type=int, default=20)
    options = parser.parse_args()
    comm = ringcast.init()
    deviations = []
    for number in range(options.tables):
        table = np.random.default_rng([number, comm.rank]).random((500, options.columns))
        rows = len(table) * comm.size
        if options.mended:
            sums, squares = comm.allreduce(np.array([table.sum(axis=0), (table**2).sum(axis=0)]))
        else:
            sums, squares = np.empty(options.columns), np.empty(options.columns)
            for i, column in enumerate(table.T):
                sums[i] = comm.allreduce(column.sum())
                squares[i] = comm.allreduce((column**2).sum())
        deviations.append(np.sqrt(squares / rows - (sums / rows) ** 2).mean())
    if comm.rank == 0:
        print(f"mean deviation {np.mean(deviations):.5f}")


if __name__ == "__main__":
    main()

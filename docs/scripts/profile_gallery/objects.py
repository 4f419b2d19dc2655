"""Every rank counts words of its own texts, and gets the counts of all.

    ringcast-launch -n 2 --profile report.html docs/scripts/profile_gallery/objects.py

The fault: the counts travel as dictionaries, which are pickled. Mended: as an array, by the number of the word.
"""

import argparse

import numpy as np

import ringcast


def main() -> None:
    """Add up the counts of all ranks, text by text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--texts", type=int, default=40)
    options = parser.parse_args()
    comm = ringcast.init()
    whole = np.zeros(options.words, np.int64)
    for number in range(options.texts):
        text = np.random.default_rng([number, comm.rank]).integers(options.words, size=100_000)
        counts = np.bincount(text, minlength=options.words)
        if options.mended:
            whole += comm.allreduce(counts)
        else:
            for table in comm.allgather({word: int(count) for word, count in enumerate(counts)}):
                whole += np.fromiter(table.values(), np.int64, options.words)
    if comm.rank == 0:
        print(f"{whole.sum()} words, the most frequent {whole.max()} times")


if __name__ == "__main__":
    main()

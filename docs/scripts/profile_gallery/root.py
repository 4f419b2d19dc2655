"""A model is fitted by gradient descent; every rank has a part of the data.

    ringcast-launch -H h0,h1,h2,h3 --profile report.html docs/scripts/profile_gallery/root.py

The fault: rank 0 gathers all gradients, adds them up and sends the sum to all. Mended: an allreduce.
"""

import argparse

import numpy as np

import ringcast


def main() -> None:
    """Fit the model, with the gradients of all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    comm = ringcast.init()
    wanted = np.random.default_rng(0).random(options.features)
    chance = np.random.default_rng([1, comm.rank])
    model = np.zeros(options.features)
    for _ in range(options.steps):
        gradient = model - wanted + chance.normal(0, 0.01, options.features)
        if options.mended:
            total = comm.allreduce(gradient)
        else:
            everybodys = comm.gather(gradient)
            total = comm.bcast(None if everybodys is None else np.sum(everybodys, axis=0))
        model -= 0.2 * total / comm.size
    if comm.rank == 0:
        print(f"mean error {np.abs(model - wanted).mean():.5f}")


if __name__ == "__main__":
    main()

"""The gradients of the layers of a network are added up over all ranks while the next layer's are computed.

    ringcast-launch -H h0,h1 --profile report.html docs/scripts/profile_gallery/no_overlap.py

The fault: each request is awaited at once. Mended: all are awaited when the last layer is computed, and
a thread lets them go on meanwhile.
"""

import argparse

import numpy as np

import ringcast


def main() -> None:
    """Add up the gradients of each layer over all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    comm = ringcast.init()
    if options.mended:
        comm.progress_thread()
    chance = np.random.default_rng(comm.rank)
    weights = [chance.random((options.width, options.width)) for _ in range(options.layers)]
    batch = chance.random((options.batch, options.width))
    total = 0.0
    for _ in range(options.steps):
        requests = []
        for layer in weights:
            request = comm.iallreduce(batch.T @ (batch @ layer))
            if options.mended:
                requests.append(request)
            else:
                total += float(request.wait().mean())
        total += sum(float(request.wait().mean()) for request in requests)
    if comm.rank == 0:
        print(f"mean gradient {total / options.steps / options.layers:.3f}")


if __name__ == "__main__":
    main()

"""A small neural network learns from data that lie on all ranks; gradients are added up while others are computed.

    ringcast-launch -n 4 examples/sgd.py

Every rank has a part of the data and the same network. In the backward pass the gradients of the last layer are known
first: their sum over all ranks (`iallreduce`) is under way while the layer before is computed. At the end
rank 0 learns from all data by itself, and compares.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import ringcast

Floats = npt.NDArray[np.float64]

SAMPLES, SIZES, RATE = 1000, (20, 64, 32, 1), 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description="a network that learns on several ranks")
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    comm = ringcast.init()
    begin, end = SAMPLES * comm.rank // comm.size, SAMPLES * (comm.rank + 1) // comm.size
    inputs, wanted = data()
    layers, losses = learn(inputs[begin:end], wanted[begin:end], steps, comm)
    if comm.rank == 0:
        expected, _ = learn(inputs, wanted, steps, None)
        if not all(np.allclose(ours, theirs) for ours, theirs in zip(layers, expected, strict=True)):
            sys.exit("this is not what one process learns")
        print(f"{steps} steps on {comm.size} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, as with one process")


def data() -> tuple[Floats, Floats]:
    """Return inputs, and what the network shall make of them."""
    random = np.random.default_rng(1)
    inputs = random.standard_normal((SAMPLES, SIZES[0]))
    return inputs, np.tanh(inputs @ random.standard_normal((SIZES[0], 1)))


def learn(
    inputs: Floats, wanted: Floats, steps: int, comm: ringcast.Communicator | None
) -> tuple[list[Floats], list[float]]:
    """Return the weights of each layer after so many steps, and the loss in each; `comm` has the rest of the data."""
    random = np.random.default_rng(2)
    layers = [random.standard_normal((m, n)) / m**0.5 for m, n in pairwise(SIZES)]
    losses: list[float] = []
    for _ in range(steps):
        outputs = forward(layers, inputs)
        wrong = outputs[-1] - wanted
        losses.append(float((wrong**2).sum()) / SAMPLES)
        requests: list[tuple[int, Floats, ringcast.Request[Floats] | None]] = []
        for i in reversed(range(len(layers))):
            gradient = outputs[i].T @ wrong / SAMPLES
            requests.append((i, gradient, comm.iallreduce(gradient, out=gradient) if comm is not None else None))
            wrong = wrong @ layers[i].T * (1 - outputs[i] ** 2)  # while the sum is under way
        for i, gradient, request in requests:
            if request is not None:
                request.wait()
            layers[i] -= RATE * gradient
    if comm is not None:
        losses = [float(loss) for loss in comm.allreduce(np.array(losses))]
    return layers, losses


def forward(layers: list[Floats], inputs: Floats) -> list[Floats]:
    """Return the inputs, and what comes out of each layer; the last one is linear."""
    outputs = [inputs]
    for i, weights in enumerate(layers):
        raw = outputs[-1] @ weights
        outputs.append(raw if i == len(layers) - 1 else np.tanh(raw))
    return outputs


if __name__ == "__main__":
    main()

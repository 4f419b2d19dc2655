"""How long a step of DDP takes over ringcast and over Gloo, in the same processes, in turns.

ringcast-launch -n 2 docs/scripts/torch_step.py

The network is small: 200 tensors, 0.3 million parameters. Prints the medians, and the median of the ratios of blocks
of steps that follow each other.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ringcast.torch  # noqa: F401 (registers the backend)

LAYERS, WIDTH, SAMPLES = 100, 54, 16  # of each layer two tensors
BLOCKS, STEPS = 30, 10


def network() -> torch.nn.Sequential:
    """Return the network of 200 tensors."""
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


class Trainer:
    """Trains a network over one group."""

    def __init__(self, backend: str) -> None:
        self._model = DistributedDataParallel(network(), process_group=dist.new_group(backend=backend))
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-3)
        self._batch = torch.randn(SAMPLES, WIDTH)

    def block(self) -> float:
        """Return the seconds of a step, averaged over a block of them."""
        begun = time.perf_counter()
        for _ in range(STEPS):
            self._optimizer.zero_grad()
            self._model(self._batch).square().mean().backward()
            self._optimizer.step()
        return (time.perf_counter() - begun) / STEPS


def main() -> None:
    """Measure, and print on rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainers = {name: Trainer(name) for name in ("gloo", "ringcast")}
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(BLOCKS + 2):
        for name, trainer in trainers.items():
            dist.barrier()
            seconds = trainer.block()
            if number >= 2:  # the first ones prepare
                times[name].append(seconds)
    if dist.get_rank() == 0:
        ratios = [mine / other for mine, other in zip(times["ringcast"], times["gloo"], strict=True)]
        for name, found in times.items():
            print(f"{name}: {1000 * statistics.median(found):.2f} ms")
        print(f"ratio {statistics.median(ratios):.2f}, torch {torch.__version__}, {dist.get_world_size()} ranks")
    dist.destroy_process_group()


main()

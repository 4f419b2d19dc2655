"""DDP, FSDP2 and FSDP1 against the same training in one process: `python -m support.torch_training backend p …`."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from support.torch_ranks import play

WIDTH, SAMPLES, STEPS = 24, 4, 6
CPU = torch.device("cpu")
Model = torch.nn.Module


def network() -> torch.nn.Sequential:
    torch.manual_seed(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(6)]
    return torch.nn.Sequential(*layers).double()


def batches(size: int) -> Iterator[torch.Tensor]:
    """Yield the samples of all ranks, for each step."""
    drawn = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        yield torch.randn(size * SAMPLES, WIDTH, generator=drawn, dtype=torch.float64)


def trained(model: Model, size: int, mine: slice) -> Model:
    """Train a model by these samples of each batch."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for batch in batches(size):
        optimizer.zero_grad()
        model(batch[mine]).square().mean().backward()
        optimizer.step()
    return model


def by_ddp(model: torch.nn.Sequential, _: int) -> tuple[Model, Model]:
    """Return the model to train, in buckets of few parameters, and the one that has the parameters then."""
    return DistributedDataParallel(model, bucket_cap_mb=0.01), model


def by_ddp_of_views(model: torch.nn.Sequential, _: int) -> tuple[Model, Model]:
    return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True), model


def by_fsdp(model: torch.nn.Sequential, size: int) -> tuple[Model, Model]:
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh), model


def by_fsdp1(model: torch.nn.Sequential, _: int) -> tuple[Model, Model]:
    """Shard by the older class, which resizes tensors that it has sent."""
    layers = [FullyShardedDataParallel(layer, device_id=CPU, use_orig_params=True) for layer in model]
    wrapped = FullyShardedDataParallel(torch.nn.Sequential(*layers), device_id=CPU, use_orig_params=True)
    return wrapped, wrapped


WAYS: tuple[Callable[[torch.nn.Sequential, int], tuple[Model, Model]], ...] = (
    by_ddp,
    by_ddp_of_views,
    by_fsdp,
    by_fsdp1,
)


def parameters(model: Model) -> list[torch.Tensor]:
    """Return the parameters of a model, which may be sharded."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return [parameter.detach().clone() for parameter in model.parameters()]
    return [mine.full_tensor() if hasattr(mine, "full_tensor") else mine for mine in model.parameters()]


def train(rank: int, size: int) -> None:
    torch.set_num_threads(1)
    alone = trained(network(), size, slice(None))
    for way in WAYS:
        wrapped, model = way(copy.deepcopy(network()), size)
        trained(wrapped, size, slice(rank * SAMPLES, (rank + 1) * SAMPLES))
        for mine, right in zip(parameters(model), alone.parameters(), strict=True):
            torch.testing.assert_close(mine, right)
        dist.barrier()


if __name__ == "__main__":
    for size in map(int, sys.argv[2:]):
        codes = play(train, size, sys.argv[1])
        print(f"p = {size}: {codes}")
        if any(codes):
            sys.exit(1)

"""Ranks of a launcher make groups of torch, destroy them, and make them again."""

import torch
import torch.distributed as dist

import ringcast.torch  # noqa: F401 (registers the backend)


def total(group: dist.ProcessGroup | None = None) -> float:
    ones = torch.ones(3)
    dist.all_reduce(ones, group=group)
    return float(ones[0])


for _ in range(2):
    dist.init_process_group("ringcast")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "ringcast"
    assert total() == size
    ends = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        assert total(ends) == 2
    mesh = dist.device_mesh.init_device_mesh("cpu", (size, 1))
    assert (total(mesh.get_group(0)), total(mesh.get_group(1))) == (size, 1)
    try:
        dist.init_process_group("ringcast")
    except ValueError:
        dist.barrier()
    dist.destroy_process_group()
print(f"rank {rank} of {size} is done")

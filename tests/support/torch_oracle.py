"""All calls of a group, against what torch computes alone: `python -m support.torch_oracle backend p …`.

Every rank draws the tensors of all ranks from the same seeds, so that it knows what it must get. Items are small whole
numbers, so that every order of combining gives the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from ringcast.torch.groups import Backend, ProcessGroup
from support.torch_ranks import play

Op = dist.ReduceOp
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*REAL, *WHOLE, *COMPLEX, torch.bool)
SHAPES = ((), (1,), (0,), (5,), (3, 0, 2), (4, 7), (40_000,))
COMBINED: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    Op.SUM: lambda all: all.sum(0),
    Op.PRODUCT: lambda all: all.prod(0),
    Op.MIN: lambda all: all.amin(0),
    Op.MAX: lambda all: all.amax(0),
    Op.AVG: lambda all: all.sum(0) / len(all),
}
BITS: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Op.BAND: torch.bitwise_and,
    Op.BOR: torch.bitwise_or,
    Op.BXOR: torch.bitwise_xor,
}


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return small whole numbers, the same for the same seed."""
    numbers = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype) * (1 + 1j) if dtype in COMPLEX else numbers.to(dtype)


def expected(op: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
    dtype = tensors[0].dtype
    if op in BITS:
        total = tensors[0]
        for tensor in tensors[1:]:
            total = BITS[op](total, tensor)
        return total
    wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.int64}.get(dtype, dtype)
    return COMBINED[op](torch.stack(tensors).to(wide)).to(dtype)


def ops(dtype: torch.dtype) -> Iterator[Any]:
    """Yield the operators that take a dtype."""
    if dtype in COMPLEX:
        yield Op.SUM
        return
    yield from (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX)
    if dtype in REAL:
        yield Op.AVG
    else:
        yield from BITS


def same(mine: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(mine, right, rtol=0, atol=0)


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with these items that is not contiguous, where it has more than one."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def reductions(rank: int, size: int) -> None:
    for dtype in DTYPES:
        for number, op in enumerate(ops(dtype)):
            for place, shape in enumerate(SHAPES if number == 0 else SHAPES[3:4]):
                given = [drawn(shape, dtype, 10 * place + each) for each in range(size)]
                right = expected(op, given)
                for make in torch.clone, apart:
                    mine = make(given[rank])
                    dist.all_reduce(mine, op)
                    same(mine, right)
                mine = given[rank].clone()
                dist.reduce(mine, size - 1, op)
                if rank == size - 1:
                    same(mine, right)
    rounded = torch.full((3,), 256.0 if rank == 0 else 1.0, dtype=torch.bfloat16)
    dist.all_reduce(rounded)
    same(rounded, torch.full((3,), 255.0 + size).bfloat16())  # each step rounded would give 256
    several = [drawn((each,), torch.float32, rank + each) for each in (3, 0, 2)]
    dist.all_reduce_coalesced(several)
    for each, tensor in zip((3, 0, 2), several, strict=True):
        same(tensor, sum(drawn((each,), torch.float32, one + each) for one in range(size)))


def sparse(rank: int, size: int) -> None:
    dense = [torch.zeros(6, 2) for _ in range(size)]
    for each in range(size):
        dense[each][each % 6] = each + 1.0
    for rows in (dense, [torch.zeros(6, 2)] * size):
        mine = rows[rank].to_sparse(1)
        dist.all_reduce(mine)
        same(mine.to_dense(), torch.stack(rows).sum(0))


def scattered_reductions(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for op in (Op.SUM, Op.MAX):
            for counts in [3] * size, [(2 * each) % 4 for each in range(size)], [0] * size:
                parts = [[drawn((n,), dtype, 7 * each + n) for n in counts] for each in range(size)]
                out = torch.empty(counts[rank], dtype=dtype)
                dist.reduce_scatter(out, parts[rank], op)
                same(out, expected(op, [parts[each][rank] for each in range(size)]))
            given = [drawn((2 * size, 3), dtype, each) for each in range(size)]
            for make in torch.clone, apart:
                out = make(torch.empty(2, 3, dtype=dtype))
                dist.reduce_scatter_tensor(out, make(given[rank]), op)
                same(out, expected(op, given)[2 * rank : 2 * rank + 2])


def gathers(rank: int, size: int) -> None:
    for dtype in DTYPES:
        for shapes in [(2, 3)] * size, [(each % 3, 2) for each in range(size)], [(0,)] * size:
            given = [drawn(shape, dtype, each) for each, shape in enumerate(shapes)]
            for make in torch.empty_like, lambda tensor: apart(torch.empty_like(tensor)):
                out = [make(tensor) for tensor in given]
                dist.all_gather(out, given[rank])
                for mine, right in zip(out, given, strict=True):
                    same(mine, right)
            got = [torch.empty_like(tensor) for tensor in given] if rank == size - 1 else None
            dist.gather(given[rank], got, size - 1)
            for mine, right in zip(got or [], given, strict=bool(got)):
                same(mine, right)
            mine = torch.empty_like(given[rank])
            dist.scatter(mine, given if rank == 0 else None, 0)
            same(mine, given[rank])
        given = [drawn((2, 3), dtype, each) for each in range(size)]
        whole = torch.empty(2 * size, 3, dtype=dtype)
        dist.all_gather_into_tensor(whole, given[rank])
        same(whole, torch.cat(given))
        for root in range(size):
            mine = given[rank].clone()
            dist.broadcast(mine, root)
            same(mine, given[root])
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), 10.0 + rank)])
    for each, (first, second) in enumerate(lists):
        same(first, torch.full((2,), float(each)))
        same(second, torch.full((3,), 10.0 + each))


def exchanges(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        parts = [[drawn(((a + 2 * b) % 4, 2), dtype, a + b) for b in range(size)] for a in range(size)]
        out = [torch.empty_like(parts[each][rank]) for each in range(size)]
        dist.all_to_all(out, parts[rank])
        for each in range(size):
            same(out[each], parts[each][rank])
        counts = [[len(part) for part in row] for row in parts]
        flat = torch.empty(sum(counts[each][rank] for each in range(size)), 2, dtype=dtype)
        received = [counts[each][rank] for each in range(size)]
        dist.all_to_all_single(flat, torch.cat(parts[rank]), received, counts[rank])
        same(flat, torch.cat([parts[each][rank] for each in range(size)]))
        given = [drawn((2 * size,), dtype, each) for each in range(size)]
        flat = torch.empty_like(given[rank])
        dist.all_to_all_single(flat, given[rank])
        same(flat, torch.cat([given[each][2 * rank : 2 * rank + 2] for each in range(size)]))


def tells_all() -> bool:
    """Whether torch does not hide what a call knows: who has sent a message, and whether it has ended."""
    return type(dist.group.WORLD) is ProcessGroup


def messages(rank: int, size: int) -> None:
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (0, 3, 200_000):
        for dtype in (torch.float32, torch.bfloat16):
            sent, got = drawn((count,), dtype, rank), torch.empty(count, dtype=dtype)
            works = [dist.isend(sent, right, tag=count), dist.irecv(got, left, tag=count)]
            for work in works:
                work.wait()
                assert work.is_completed() or not tells_all()
            same(got, drawn((count,), dtype, left))
    ops = [dist.P2POp(dist.isend, torch.full((2,), rank), right), dist.P2POp(dist.irecv, torch.empty(2).long(), left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert ops[1].tensor.tolist() == [left, left]
    if rank == 0:
        sources = set()
        for _ in range(size - 1):
            got = torch.zeros(1)
            if tells_all():
                assert dist.recv(got) == got.item()
            else:
                dist.group.WORLD.recv_anysource([got], 0).wait()
            sources.add(got.item())
        assert sources == set(range(1, size))
    else:
        dist.send(torch.full((1,), float(rank)), 0)


def objects(rank: int, size: int) -> None:
    everybodys: list[Any] = [None] * size
    dist.all_gather_object(everybodys, {"rank": rank, "text": "x" * rank})
    assert everybodys == [{"rank": each, "text": "x" * each} for each in range(size)]
    sent = [["a", rank], rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(sent, 0)
    assert sent == [["a", 0], 0]
    got: list[Any] = [None]
    dist.scatter_object_list(got, [(each, "y") for each in range(size)] if rank == 0 else None, 0)
    assert got == [(rank, "y")]
    mine = [None] * size if rank == 0 else None
    dist.gather_object(rank, mine, 0)
    assert mine in (None, [*range(size)])


def overlapping(rank: int, size: int) -> None:
    tensors = [torch.full((1000,), float(rank + each)) for each in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works[::2]]
    for work in reversed(works):
        work.wait()
    for each, tensor in enumerate(tensors):
        same(tensor, torch.full((1000,), float(sum(range(size)) + size * each)))
    for future in futures:
        assert isinstance(future.wait(), list)
    doubled = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((3,), 2.0 * size))
    dist.all_reduce(torch.ones(3), async_op=True)  # left alone
    dist.barrier()
    if tells_all():
        ended_while_asked()


def ended_while_asked() -> None:
    """Ask for the future of a call that another thread ends at the same time."""
    work, then = dist.all_reduce(torch.ones(3), async_op=True), torch.futures.Future.then

    def late(future: Any, call: Callable[..., Any]) -> Any:
        made = then(future, call)
        work.wait()
        return made

    with patch.object(torch.futures.Future, "then", late):
        future = work.get_future()
    assert len(future.wait()) == 1


def parts(rank: int, size: int) -> None:
    evens = dist.new_group([*range(0, size, 2)])
    if rank % 2 == 0:
        total = torch.ones(2)
        dist.all_reduce(total, group=evens)
        same(total, torch.full((2,), float((size + 1) // 2)))
        dist.destroy_process_group(evens)
    again = dist.new_group([*range(0, size, 2)])
    if rank % 2 == 0:
        dist.barrier(group=again)
    mine, _ = dist.new_subgroups_by_enumeration([[each] for each in range(size)])
    dist.barrier(group=mine)
    everybody = dist.group.WORLD
    half = [each for each in reversed(range(size)) if each % 2 == rank % 2]
    split = everybody.split_group(half, timeout=timedelta(seconds=50), group_name=f"half {half}")
    ranks = [torch.empty(1) for _ in half]
    split.allgather([ranks], [torch.full((1,), float(rank))]).wait()
    assert (torch.cat(ranks).tolist(), split.rank(), split.size()) == (half, half.index(rank), len(half))
    if tells_all():
        made = everybody._get_sequence_number_for_group()
        dist.all_reduce(torch.ones(2))
        assert everybody._get_sequence_number_for_group() == made + 1
    ones = torch.ones(2)
    everybody.allreduce([ones]).wait()
    everybody.allreduce(ones, Op.MAX).wait()
    assert everybody.allreduce([ones], Op.MIN).get_future().wait()[0].tolist() == [size, size]
    everybody.set_timeout(timedelta(seconds=50))
    with suppress(ValueError):  # before 2.14 torch has it for Gloo alone
        dist.monitored_barrier()
    everybody.monitored_barrier(timedelta(seconds=50))


def refusals(rank: int, size: int) -> None:
    """What torch's programs may get wrong, before anything is sent."""
    wrong: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(torch.ones(2), Op.BAND),
        lambda: dist.all_gather([torch.ones(1)] * (size + 1), torch.ones(1)),
        lambda: dist.all_gather_into_tensor(torch.ones(size + 1), torch.ones(1)),
        lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1] * size, [2] * size),
        lambda: dist.broadcast(torch.ones(2).to_sparse(), 0),
    ]
    if tells_all():  # else torch itself makes nothing of a tensor without memory
        wrong.append(lambda: dist.broadcast(torch.ones(2, device="meta"), 0))
    for call in wrong:
        try:
            call()
        except (ValueError, RuntimeError):
            continue
        raise AssertionError("expected an error")
    dist.barrier()


def everything(rank: int, size: int) -> None:
    torch.set_num_threads(1)
    for part in (
        reductions,
        sparse,
        scattered_reductions,
        gathers,
        exchanges,
        messages,
        objects,
        overlapping,
        parts,
        refusals,
    ):
        part(rank, size)


if __name__ == "__main__":
    if ":" in sys.argv[1] and Backend is None:
        print("this torch has no backends in Python")
        sys.exit()
    for size in map(int, sys.argv[2:]):
        codes = play(everything, size, sys.argv[1])
        print(f"p = {size}: {codes}")
        if any(codes):
            sys.exit(1)

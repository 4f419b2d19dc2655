"""The types of the results of all calls: read by mypy and pyright in test_types.py, never run."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import ringcast
from ringcast import Communicator, Grid, Persistent, Request, Status, Topology
from ringcast.collectives.explain import Explanation

Floats = NDArray[np.float64]
FloatsAtRoot = Floats | None  # as a root's results are
TextsAtRoot = list[str] | None


def values_that_move(
    comm: Communicator, floats: Floats, at_root: FloatsAtRoot, scalar: np.float32, anything: Any, some: NDArray[Any]
) -> None:
    assert_type(comm.bcast(floats, 1), Floats)
    assert_type(comm.bcast(at_root), Floats)
    assert_type(comm.bcast(floats if comm.rank == 0 else None), Floats)
    assert_type(comm.bcast({"a": 1} if comm.rank == 0 else None), dict[str, int])
    assert_type(comm.bcast(scalar), np.float32)
    assert_type(comm.bcast(), Any)
    assert_type(comm.bcast(None, root=1), Any)

    assert_type(comm.shared_array(3), Floats)
    assert_type(comm.shared_array((3, 4), np.int32, fill=1), NDArray[np.int32])
    assert_type(comm.shared_array([3], "i4"), NDArray[Any])
    assert_type(comm.bcast_shared(floats), Floats)
    assert_type(comm.bcast_shared(floats if comm.rank == 1 else None, 1, writeable=True), Floats)

    assert_type(comm.scatter(floats), Any)  # a row: an array or a scalar
    assert_type(comm.scatter(["a"]), str)
    assert_type(comm.scatter(["a"] if comm.rank == 0 else None), str)
    assert_type(comm.scatter(), Any)
    assert_type(comm.scatterv(floats, [1, 2]), Floats)
    assert_type(comm.scatterv(at_root), Floats)
    assert_type(comm.scatterv(["a"], [1]), list[str])
    assert_type(comm.scatterv(["a"] if comm.rank == 0 else None), list[str])
    assert_type(comm.scatterv(at_root, out=floats), Floats)
    assert_type(comm.scatterv(), Any)  # an array or a list

    assert_type(comm.gather(floats), FloatsAtRoot)
    assert_type(comm.gather(some), NDArray[Any] | None)
    assert_type(comm.gather(scalar), NDArray[np.float32] | None)
    assert_type(comm.gather("a", root=1), TextsAtRoot)
    assert_type(comm.gather(anything), Any)
    assert_type(comm.gatherv(floats), FloatsAtRoot)
    assert_type(comm.gatherv(["a"]), TextsAtRoot)

    assert_type(comm.allgather(floats, out=floats), Floats)
    assert_type(comm.allgather(some), NDArray[Any])
    assert_type(comm.allgather(scalar), NDArray[np.float32])
    assert_type(comm.allgather("a"), list[str])
    assert_type(comm.allgatherv(floats, [1, 2]), Floats)
    assert_type(comm.allgatherv(["a"]), list[str])
    assert_type(comm.allgatherv((1, 2)), list[int])
    assert_type(comm.merge_sorted(floats, out=floats), Floats)

    assert_type(comm.alltoall(floats), Floats)
    assert_type(comm.alltoall(["a"]), list[str])
    assert_type(comm.alltoallv(floats, [1, 2]), Floats)
    assert_type(comm.alltoallv(["a"], [1]), list[str])
    assert_type(comm.shift(floats, 1), Floats)
    assert_type(comm.shift("a", -1), str)


def values_that_are_combined(comm: Communicator, floats: Floats, scalar: np.float32) -> None:
    assert_type(comm.reduce(floats, ringcast.MAX, out=floats), FloatsAtRoot)
    assert_type(comm.reduce(scalar, max), np.float32 | None)
    assert_type(comm.reduce("a"), str | None)
    assert_type(comm.allreduce(floats), Floats)
    assert_type(comm.allreduce(scalar), np.float32)
    assert_type(comm.allreduce(1), int)
    assert_type(comm.allreduce({"a"}, lambda a, b: a | b), set[str])
    assert_type(comm.reduce_scatter(floats, sum, [1, 2]), Floats)
    assert_type(comm.reduce_scatter([1.5]), float)
    assert_type(comm.scan(floats), Floats)
    assert_type(comm.scan(1), int)
    assert_type(comm.exscan(floats), FloatsAtRoot)
    assert_type(comm.exscan(floats, out=floats), Floats)
    assert_type(comm.exscan(1), int | None)
    comm.barrier()


def messages(comm: Communicator, floats: Floats, source: int | None, status: Status) -> None:
    comm.send(floats, 1)
    assert_type(comm.recv(), Any)
    assert_type(comm.recv(1, out=floats), Floats)
    assert_type(comm.recv(ringcast.ANY_SOURCE, ringcast.ANY_TAG, out=floats, status=status), Floats)
    assert_type(comm.recv(source, out=floats), FloatsAtRoot)
    assert_type(comm.sendrecv("a", 1, 0), Any)
    assert_type(comm.sendrecv(floats, 1, 0, out=floats), Floats)
    assert_type(comm.sendrecv(floats, 1, source, out=floats), FloatsAtRoot)
    assert_type(comm.probe(), Status)
    assert_type(comm.iprobe(0, 1), Status | None)


def communicators(comm: Communicator) -> None:
    assert_type(comm.dup(), Communicator)
    assert_type(comm.split(None), Communicator | None)
    assert_type(comm.split(comm.rank % 2), Communicator)
    assert_type(comm.split_by_host(), Communicator)
    assert_type(comm.create([0]), Communicator | None)
    assert_type(comm.cart([0, 0]), Grid[Communicator] | None)
    assert_type(comm.shrink(), Communicator)
    assert_type(comm.agree(), int)
    assert_type(comm.explain("bcast", nbytes=1), Explanation)
    assert_type((comm.rank, comm.size, comm.closed, comm.is_revoked), tuple[int, int, bool, bool])
    assert_type((comm.members, comm.get_failed(), comm.ack_failed()), tuple[tuple[int, ...], tuple[int, ...], int])
    with comm as entered:
        assert_type(entered, Communicator)
    comm.revoke()
    comm.free()
    comm.finalize()


def forms_that_do_not_block(comm: Communicator, floats: Floats, at_root: FloatsAtRoot) -> None:
    assert_type(comm.ibcast(at_root), Request[Floats])
    assert_type(comm.ibcast(at_root).wait(), Floats)
    assert_type(comm.ibcast(), Request[Any])
    assert_type(comm.iscatter(["a"]), Request[str])
    assert_type(comm.iscatterv(at_root), Request[Floats])
    assert_type(comm.igather(floats), Request[FloatsAtRoot])
    assert_type(comm.igather("a"), Request[TextsAtRoot])
    assert_type(comm.igatherv(floats), Request[FloatsAtRoot])
    assert_type(comm.igatherv(["a"]), Request[TextsAtRoot])
    assert_type(comm.iallgather(floats), Request[Floats])
    assert_type(comm.iallgather("a"), Request[list[str]])
    assert_type(comm.iallgatherv(floats), Request[Floats])
    assert_type(comm.iallgatherv(["a"]), Request[list[str]])
    assert_type(comm.imerge_sorted(floats), Request[Floats])
    assert_type(comm.ialltoall(floats), Request[Floats])
    assert_type(comm.ialltoall(["a"]), Request[list[str]])
    assert_type(comm.ialltoallv(floats, [1]), Request[Floats])
    assert_type(comm.ishift(floats, 1, out=floats), Request[Floats])
    assert_type(comm.ireduce(floats), Request[FloatsAtRoot])
    assert_type(comm.iallreduce(floats), Request[Floats])
    assert_type(comm.iallreduce(1).wait(), int)
    assert_type(comm.ireduce_scatter(floats), Request[Floats])
    assert_type(comm.iscan(floats), Request[Floats])
    assert_type(comm.iexscan(floats), Request[FloatsAtRoot])
    assert_type(comm.ibarrier(), Request[None])
    assert_type(comm.isend(floats, 1), Request[None])
    assert_type(comm.irecv(), Request[Any])
    assert_type(comm.irecv(1, out=floats), Request[Floats])
    assert_type(comm.irecv(None, out=floats), Request[FloatsAtRoot])


def persistent_forms(comm: Communicator, floats: Floats, at_root: FloatsAtRoot) -> None:
    assert_type(comm.bcast_init(at_root), Persistent[Floats])
    assert_type(comm.bcast_init(at_root).wait(), Floats)
    assert_type(comm.bcast_init(), Persistent[Any])
    assert_type(comm.scatter_init(["a"]), Persistent[str])
    assert_type(comm.scatterv_init(at_root), Persistent[Floats])
    assert_type(comm.gather_init(floats), Persistent[FloatsAtRoot])
    assert_type(comm.gather_init("a"), Persistent[TextsAtRoot])
    assert_type(comm.gatherv_init(floats), Persistent[FloatsAtRoot])
    assert_type(comm.allgather_init(floats), Persistent[Floats])
    assert_type(comm.allgather_init("a"), Persistent[list[str]])
    assert_type(comm.allgatherv_init(floats), Persistent[Floats])
    assert_type(comm.allgatherv_init(["a"]), Persistent[list[str]])
    assert_type(comm.merge_sorted_init(floats), Persistent[Floats])
    assert_type(comm.alltoall_init(floats), Persistent[Floats])
    assert_type(comm.alltoall_init(["a"]), Persistent[list[str]])
    assert_type(comm.alltoallv_init(floats, [1]), Persistent[Floats])
    assert_type(comm.shift_init(floats, 1), Persistent[Floats])
    assert_type(comm.reduce_init(floats), Persistent[FloatsAtRoot])
    assert_type(comm.allreduce_init(floats), Persistent[Floats])
    assert_type(comm.allreduce_init(1).wait(), int)
    assert_type(comm.reduce_scatter_init(floats), Persistent[Floats])
    assert_type(comm.scan_init(floats), Persistent[Floats])
    assert_type(comm.exscan_init(floats), Persistent[FloatsAtRoot])
    assert_type(comm.barrier_init(), Persistent[None])
    assert_type(comm.send_init(floats, 1), Persistent[None])
    assert_type(comm.recv_init(), Persistent[Any])
    assert_type(comm.recv_init(1, out=floats), Persistent[Floats])
    assert_type(comm.recv_init(None, out=floats), Persistent[FloatsAtRoot])


def neighbors(comm: Communicator, floats: Floats, scalar: np.float32) -> None:
    graph = comm.graph([0])
    assert_type(graph, Topology[Communicator])
    assert_type(graph.comm, Communicator)
    assert_type(graph.neighbor_allgather(floats), Floats)
    assert_type(graph.neighbor_allgather(scalar), NDArray[np.float32])
    assert_type(graph.neighbor_allgather("a"), list[str | None])  # None beyond the ends of a grid
    assert_type(graph.neighbor_allgatherv(floats), Floats)
    assert_type(graph.neighbor_allgatherv(["a"]), list[str])
    assert_type(graph.neighbor_alltoall(floats), Floats)
    assert_type(graph.neighbor_alltoall(["a"]), list[str | None])
    assert_type(graph.neighbor_alltoallv(floats, [1]), Floats)
    assert_type(graph.neighbor_alltoallv(["a"], [1]), list[str])
    assert_type(graph.ineighbor_allgather(floats), Request[Floats])
    assert_type(graph.ineighbor_alltoall(["a"]), Request[list[str | None]])
    assert_type(graph.neighbor_alltoallv_init(floats, [1]), Persistent[Floats])
    grid = comm.cart([1])
    if grid is not None:
        assert_type(grid.neighbor_allgather(floats), Floats)
        assert_type(grid.sub([0]), Grid[Communicator])


def functions(floats: Floats) -> None:
    assert_type(ringcast.run(lambda comm: comm.rank, 2), list[int])
    assert_type(ringcast.run(doubled, 2, args=(floats,)), list[Floats])


def doubled(comm: Communicator, floats: Floats) -> Floats:
    return comm.size * floats


def several_requests(comm: Communicator, floats: Floats) -> None:
    numbers = [comm.iallreduce(i) for i in range(3)]
    assert_type(ringcast.wait_any(numbers), tuple[int, int])
    assert_type(ringcast.wait_some(numbers), list[tuple[int, int]])
    assert_type(ringcast.wait_all(numbers), list[int])
    addition = comm.allreduce_init(1)
    addition.start()
    assert_type(addition.wait(), int)
    assert_type(ringcast.wait_all([addition, *numbers]), list[int])
    halo = [comm.irecv(0, out=floats), comm.isend(floats, 1)]
    assert_type(ringcast.wait_all(halo), list[FloatsAtRoot])

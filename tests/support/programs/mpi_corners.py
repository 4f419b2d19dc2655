"""Calls of MPI with nothing to move: zero counts, null datatypes, ranks without neighbours, PROC_NULL.

Prints what came of every case on each rank, by its name and its form ("", "I" or "_init"). On MPICH it is the oracle of
the same program on ringcast; the argument `all` adds what MPICH dies of, and what not all of its ranks refuse.
"""

import json
import sys
from functools import partial

import numpy as np
from mpi4py import MPI

ALL = "all" in sys.argv
COMM = MPI.COMM_WORLD
RANK, SIZE, NULL, NOBODY = COMM.rank, COMM.size, MPI.DATATYPE_NULL, MPI.PROC_NULL
TO, FROM = (RANK + 1) % SIZE, (RANK - 1) % SIZE
MINE = np.arange(2.0 * SIZE) + 10 * RANK
LOOSE = MPI.INT.Create_contiguous(2)  # not committed
ZEROS, NULLS = [0] * SIZE, [NULL] * SIZE
found = {}


def run(name, comm, call, form, args, out):
    """Make a call in a form, and note its error, or what `out` has then."""
    method = getattr(comm, f"I{call.lower()}" if form == "I" else call + form)
    try:
        request = method(*args)
        if form == "_init":
            request.Start()
        if form:
            request.Wait()
        if form == "_init":
            request.Free()
        outcome = f"ok {out.tolist()}"
    except MPI.Exception as error:
        outcome = f"MPI.Exception {error.Get_error_class()}"
    except Exception as error:
        outcome = type(error).__name__
    found[f"{name} {form}"] = outcome


def forms(name, comm, call, arguments, *, nulls=False):
    """Make a call in all its forms; `arguments` is given the array to receive into, which begins as -1."""
    for form in ("", "I", "_init"):
        if form != "_init" or ALL or not nulls:
            out = np.full(2 * max(SIZE, 2), -1.0)
            run(name, comm, call, form, arguments(out), out)


def both(spec, out):
    return [spec(MINE), spec(out)]


EMPTY = {
    "no memory": lambda buf: [None, 0, NULL],
    "some memory": lambda buf: [buf, 0, NULL],
    "a displacement": lambda buf: [buf, (0, 0), NULL],
    "no count": lambda buf: [buf, NULL],
    "neither": lambda buf: [None, NULL],
    "one": lambda buf: [buf, 1, NULL],
    "no type": lambda buf: [buf, 0, None],
    "bytes": lambda buf: [None, 0, MPI.BYTE],
    "uncommitted": lambda buf: [buf, 0, LOOSE],
}


def empty(name, spec):
    """Try all calls that have one count."""
    nulls = name not in ("no type", "bytes")
    forms(f"Bcast {name}", COMM, "Bcast", lambda out: [spec(out)], nulls=nulls)
    for call in ("Gather", "Scatter", "Allgather", "Alltoall"):
        forms(f"{call} {name}", COMM, call, partial(both, spec), nulls=nulls)
        if name not in ("one", "no count") and (ALL or call.startswith("All")):
            forms(f"{call} from {name}", COMM, call, lambda out: [spec(MINE), [out, 0, MPI.INT]], nulls=nulls)
            forms(f"{call} to {name}", COMM, call, lambda out: [[MINE, 0, MPI.INT], spec(out)], nulls=nulls)
    if name == "bytes":  # MPICH dies in reductions of a null datatype
        for call in ("Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter_block"):
            forms(f"{call} {name}", COMM, call, lambda out: [*both(spec, out), MPI.BOR])
    for call in ("Send", "Ssend", "Bsend", "Rsend", "Recv"):
        forms(f"{call} {name} to nobody", COMM, call, lambda out: [spec(out), NOBODY])
    run(f"Sendrecv {name}", COMM, "Sendrecv", "", [spec(MINE), TO, 0, spec(MINE.copy()), FROM, 0], MINE)
    run(f"Sendrecv {name} to nobody", COMM, "Sendrecv", "", [spec(MINE), NOBODY, 0, spec(MINE), NOBODY, 0], MINE)
    run(f"Sendrecv_replace {name}", COMM, "Sendrecv_replace", "", [spec(MINE.copy()), TO, 0, FROM, 0], MINE)


VECTORS = {
    "no memory": lambda buf: [None, (ZEROS, ZEROS), NULL],
    "memory": lambda buf: [buf, (ZEROS, ZEROS), NULL],
    "counts only": lambda buf: [buf, ZEROS, NULL],
    "one number": lambda buf: [buf, 0, NULL],
    "no counts": lambda buf: [buf, NULL],
    "bytes": lambda buf: [None, (ZEROS, ZEROS), MPI.BYTE],
    "past the end": lambda buf: [buf, (ZEROS, [1000] * SIZE), MPI.DOUBLE],
    "ones": lambda buf: [buf, [1] * SIZE, NULL],
}


def vectors(name, spec):
    """Try all calls that have a count for each rank."""
    nulls, nothing = name not in ("bytes", "past the end"), [None, 0, NULL]
    forms(f"Alltoallv {name}", COMM, "Alltoallv", partial(both, spec), nulls=nulls)
    if name not in ("ones", "no counts"):  # else not all ranks would fail
        forms(f"Gatherv {name}", COMM, "Gatherv", lambda out: [nothing, spec(out)], nulls=True)
        forms(f"Scatterv {name}", COMM, "Scatterv", lambda _: [spec(MINE), nothing], nulls=True)
        forms(f"Allgatherv {name}", COMM, "Allgatherv", lambda out: [nothing, spec(out)], nulls=True)


def only(rank):
    """Return counts and datatypes of data for one rank."""
    return [2 * (k == rank) for k in range(SIZE)], [MPI.DOUBLE if k == rank else NULL for k in range(SIZE)]


def wide():
    """Try calls that have a datatype for each rank."""

    def ring(out):
        return [[data, (counts, ZEROS), types] for data, (counts, types) in ((MINE, only(TO)), (out, only(FROM)))]

    forms("Alltoallw in a ring", COMM, "Alltoallw", ring, nulls=True)
    for name, spec in {
        "none": lambda buf: [buf, (ZEROS, ZEROS), NULLS],
        "no memory": lambda buf: [None, (ZEROS, ZEROS), NULLS],
        "no counts": lambda buf: [buf, NULLS],
        "ones": lambda buf: [buf, ([1] * SIZE, ZEROS), NULLS],
    }.items():
        forms(f"Alltoallw {name}", COMM, "Alltoallw", partial(both, spec), nulls=True)


def line():
    """Try calls on a line, whose ends have PROC_NULL as a neighbour."""
    grid = COMM.Create_cart([SIZE], periods=[False])
    counts = [int(k != NOBODY) for k in grid.Shift(0, 1)]
    types = [MPI.DOUBLE if count else NULL for count in counts]
    forms("line w", grid, "Neighbor_alltoallw", partial(both, lambda b: [b, (counts, [0, 8]), types]), nulls=True)
    forms("line v", grid, "Neighbor_alltoallv", partial(both, lambda b: [b, (counts, [0, 1]), MPI.DOUBLE]))


def neighbours(name, graph):
    """Try calls on a graph in which some ranks have no neighbours."""
    if graph == MPI.COMM_NULL:
        return
    sources, destinations = (0, 0) if name == "point" else graph.Get_dist_neighbors_count()[:2]

    def filled(buf, n):
        return buf[: 2 * n]

    def counted(buf, n):
        return [buf, ([2] * n, list(range(0, 2 * n, 2))), MPI.DOUBLE]

    def each(buf, n):
        return [buf, ([1] * n, list(range(0, 8 * n, 8))), [MPI.DOUBLE] * n]

    def exchange(spec, out):
        return [spec(MINE, destinations), spec(out, sources)]

    def gather(spec, out):
        return [MINE[:2], spec(out, sources)]

    forms(f"{name}: alltoallw", graph, "Neighbor_alltoallw", partial(exchange, each))
    for which, spec in {"filled": filled, "counted": counted}.items():
        forms(f"{name}: alltoallv {which}", graph, "Neighbor_alltoallv", partial(exchange, spec))
        forms(f"{name}: allgatherv {which}", graph, "Neighbor_allgatherv", partial(gather, spec))
    forms(f"{name}: alltoall", graph, "Neighbor_alltoall", partial(exchange, filled))
    forms(f"{name}: allgather", graph, "Neighbor_allgather", partial(gather, filled))
    if name in ("none", "point"):
        for which, nothing in {"no memory": [None, MPI.DOUBLE], "null": [None, NULL], "zero": [MINE, 0, NULL]}.items():
            for call in ("alltoall", "alltoallv"):
                forms(f"{name}: {call} {which}", graph, f"Neighbor_{call}", lambda _, n=nothing: [n, n], nulls=True)


for case, made in EMPTY.items():
    empty(case, made)
for case, made in VECTORS.items():
    vectors(case, made)
wide()
line()
others = [k for k in range(1, SIZE) if k != RANK] if RANK else []
neighbours("all but one", COMM.Create_dist_graph_adjacent(others, others))
neighbours("none", COMM.Create_dist_graph_adjacent([], []))
neighbours("one way", COMM.Create_dist_graph_adjacent([0] if RANK else [], [] if RANK else range(1, SIZE)))
neighbours("point", COMM.Create_cart([]))
everything = COMM.gather(found)
if RANK == 0:
    print(json.dumps(everything), flush=True)

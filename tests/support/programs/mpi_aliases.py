"""Check whether object calls of mpi4py return an object that the program has passed, or one within it: all calls.

The same file runs on ringcast and on an MPI: what they print must agree.
"""

import json


def mutable(value):
    """Return the identities of an object and of all within it that the program can change."""
    if isinstance(value, list | dict):
        yield id(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from mutable(item)


def first(one, _):
    return one


def last(_, other):
    return other


def grown(one, other):
    one.extend(other)
    return one


def table(MPI):
    """Return for each call whether its result has an object of the arguments in it, on this rank."""
    comm = MPI.COMM_WORLD
    rank, p = comm.rank, comm.size
    found = {}

    def check(name, call, given, *others):
        before = repr(given)
        got = call(given, *others)
        assert repr(given) == before, name
        found[name] = not {*mutable(got)}.isdisjoint(mutable(given))

    def fresh():
        return {"key": [rank]}

    names = ("SUM", "MAX", "MIN", "REPLACE", "NO_OP")
    operators = {**{name: getattr(MPI, name) for name in names}, "first": first, "last": last, "grown": grown}

    def of_all(comm, name, roots):
        for root in roots:
            check(f"{name}bcast {root}", comm.bcast, fresh(), root)
            check(f"{name}gather {root}", comm.gather, fresh(), root)
            check(f"{name}scatter {root}", comm.scatter, [fresh() for _ in range(comm.size)], root)
            for known, op in operators.items():
                check(f"{name}reduce {known} {root}", comm.reduce, [rank, [rank]], op, root)
        check(f"{name}allgather", comm.allgather, fresh())
        check(f"{name}alltoall", comm.alltoall, [fresh() for _ in range(comm.size)])
        for call in comm.allreduce, comm.scan, comm.exscan:
            for known, op in operators.items():
                check(f"{name}{call.__name__} {known}", call, [rank, [rank]], op)
            for known in "MAXLOC", "MINLOC":
                check(f"{name}{call.__name__} {known}", call, ([rank], rank), getattr(MPI, known))

    of_all(comm, "", sorted({0, p - 1}))
    of_all(MPI.COMM_SELF, "alone ", [0])

    def to_itself(send):
        def call(value):
            request = send(value, rank)
            got = comm.recv(source=rank)
            request.wait()
            return got

        return call

    def received(value):
        request = comm.irecv(source=rank)
        comm.isend(value, rank).wait()
        return request.wait()

    def matched(value):
        request = comm.isend(value, rank)
        got = comm.mprobe(source=rank).recv()
        request.wait()
        return got

    check("sendrecv with itself", comm.sendrecv, fresh(), rank, 0, None, rank, 0)
    check("sendrecv around", comm.sendrecv, fresh(), (rank + 1) % p, 0, None, (rank - 1) % p, 0)
    check("isend", to_itself(comm.isend), fresh())
    check("issend", to_itself(comm.issend), fresh())
    check("irecv", received, fresh())
    check("mprobe", matched, fresh())
    ring = comm.Create_cart([p], periods=[True])
    graph = comm.Create_dist_graph_adjacent([rank, (rank + 1) % p], [rank, (rank - 1) % p])
    for name, near in ("ring", ring), ("graph", graph):
        check(f"{name} allgather", near.neighbor_allgather, fresh())
        check(f"{name} alltoall", near.neighbor_alltoall, [fresh(), fresh()])
        near.Free()
    if p > 1:
        between(MPI, comm, check, fresh)
    return found


def between(MPI, comm, check, fresh):
    """The calls of two sides."""
    rank = comm.rank
    local = comm.Split(rank % 2)
    sides = local.Create_intercomm(0, comm, 1 - rank % 2)
    root = 0 if rank % 2 else MPI.ROOT if rank == 0 else MPI.PROC_NULL
    several = [fresh() for _ in range(sides.remote_size)]
    check("sides bcast", sides.bcast, fresh(), root)
    check("sides gather", sides.gather, fresh(), root)
    check("sides scatter", sides.scatter, several, root)
    check("sides allgather", sides.allgather, fresh())
    check("sides alltoall", sides.alltoall, several)
    check("sides reduce", sides.reduce, [rank, [rank]], MPI.SUM, root)
    check("sides allreduce", sides.allreduce, [rank, [rank]])
    sides.Free()
    local.Free()


if __name__ == "__main__":
    from mpi4py import MPI

    every = MPI.COMM_WORLD.gather(table(MPI))
    if every:
        print(json.dumps(every))

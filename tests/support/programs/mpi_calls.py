"""A program for mpi4py that makes the calls which it reads, a list in JSON per line, and prints what all ranks got.

The same file runs on ringcast and on an MPI: what they print must agree. A call is a dict; `do` names a function here.
"""

import json
import sys

import numpy as np
from mpi4py import MPI

GAP = 0x5A  # what is in memory where nothing was received
OPS = {name: getattr(MPI, name) for name in ("SUM", "PROD", "MAX", "MIN", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR")}
ERRORS = {getattr(MPI, name): name for name in dir(MPI) if name.startswith("ERR_")}


def layout(shape):
    """Return a datatype, and how many items of its base one element has."""
    kind, base, *how = shape
    base = MPI.Datatype.fromcode(base)
    if kind == "plain":
        made = base.Create_contiguous(how[0])
    elif kind == "vector":
        blocks, length, stride = how
        made = base.Create_vector(blocks, length, stride)
    elif kind == "indexed":
        lengths, displs = how
        made = base.Create_indexed(lengths, displs)
    else:
        length, gap = how
        inner = base.Create_contiguous(length)
        made = MPI.Datatype.Create_struct([1, 1], [0, inner.Get_extent()[1] + gap], [inner, base])
    return made.Commit()


class Memory:
    """Memory for `count` elements of a datatype, filled for a rank to send, or empty to receive."""

    def __init__(self, shape, count, fill):
        self.type, self.count = layout(shape), count
        _, extent = self.type.Get_extent()
        self.bytes = np.full(max(self.type.Get_true_extent()[1], extent) * max(count, 1) + 8, GAP, np.uint8)
        if fill is not None:
            self.bytes[:] = (np.arange(self.bytes.size) * 7 + fill * 31) % 251

    @property
    def spec(self):
        return [self.bytes, self.count, self.type]

    def parts(self, counts, displs):
        return [self.bytes, counts, displs, self.type]

    def result(self):
        self.type.Free()
        return self.bytes.tobytes().hex()


def made(comm, call, name, *args, **kwargs):
    """Make a call in the form that is asked for; return what it returns."""
    form = call["form"]
    if form == "I":
        request = getattr(comm, "I" + name[0].lower() + name[1:])(*args, **kwargs)
        request.Wait()
    elif form == "init":
        request = getattr(comm, name + "_init")(*args, **kwargs)
        for _ in range(2):
            request.Start()
            request.Wait()
        request.Free()
    else:
        getattr(comm, name)(*args, **kwargs)


def bcast(comm, call):
    root = call["root"] % comm.size
    shape = call["give"] if comm.rank == root else call["take"]
    memory = Memory(shape, call["count"], 1 if comm.rank == root else None)
    made(comm, call, "Bcast", memory.spec, root=root)
    return memory.result()


def gather(comm, call):
    root, n = call["root"] % comm.size, call["count"]
    give = Memory(call["give"], n, comm.rank)
    take = Memory(call["take"], n * comm.size, None)
    into = [take.bytes, n, take.type] if comm.rank == root else None
    made(comm, call, "Gather", give.spec, into, root=root)
    return give.result() + take.result()


def scatter(comm, call):
    root, n = call["root"] % comm.size, call["count"]
    give = Memory(call["give"], n * comm.size, comm.rank)
    take = Memory(call["take"], n, None)
    origin = [give.bytes, n, give.type] if comm.rank == root else None
    made(comm, call, "Scatter", origin, take.spec, root=root)
    return take.result()


def allgather(comm, call):
    n = call["count"]
    give, take = Memory(call["give"], n, comm.rank), Memory(call["take"], n * comm.size, None)
    made(comm, call, "Allgather", give.spec, [take.bytes, n, take.type])
    return take.result()


def alltoall(comm, call):
    n = call["count"]
    give, take = Memory(call["give"], n * comm.size, comm.rank), Memory(call["take"], n * comm.size, None)
    made(comm, call, "Alltoall", [give.bytes, n, give.type], [take.bytes, n, take.type])
    return take.result()


def placed(counts, call):
    """Return displacements of parts in another order than that of the ranks, with gaps, and the elements in all."""
    order = sorted(range(len(counts)), key=lambda i: (i * call["stride"] + call["root"]) % 17)
    displs, at = [0] * len(counts), 0
    for i in order:
        displs[i] = at
        at += counts[i] + call["gap"]
    return displs, at


def counts_of(comm, call):
    return [call["counts"][i % len(call["counts"])] for i in range(comm.size)]


def gatherv(comm, call):
    root, counts = call["root"] % comm.size, counts_of(comm, call)
    displs, total = placed(counts, call)
    give, take = Memory(call["give"], counts[comm.rank], comm.rank), Memory(call["take"], total, None)
    made(comm, call, "Gatherv", give.spec, take.parts(counts, displs) if comm.rank == root else None, root=root)
    return take.result()


def scatterv(comm, call):
    root, counts = call["root"] % comm.size, counts_of(comm, call)
    displs, total = placed(counts, call)
    give, take = Memory(call["give"], total, 3), Memory(call["take"], counts[comm.rank], None)
    made(comm, call, "Scatterv", give.parts(counts, displs) if comm.rank == root else None, take.spec, root=root)
    return take.result()


def allgatherv(comm, call):
    counts = counts_of(comm, call)
    displs, total = placed(counts, call)
    give, take = Memory(call["give"], counts[comm.rank], comm.rank), Memory(call["take"], total, None)
    made(comm, call, "Allgatherv", give.spec, take.parts(counts, displs))
    return take.result()


def pairs(comm, call):
    """Return how many elements this rank has for each, and gets from each."""
    n = counts_of(comm, call)
    return [n[(comm.rank + 2 * i) % comm.size] for i in range(comm.size)], [
        n[(i + 2 * comm.rank) % comm.size] for i in range(comm.size)
    ]


def alltoallv(comm, call):
    to, of = pairs(comm, call)
    (sdispls, sent), (rdispls, got) = placed(to, call), placed(of, call)
    give, take = Memory(call["give"], sent, comm.rank), Memory(call["take"], got, None)
    made(comm, call, "Alltoallv", give.parts(to, sdispls), take.parts(of, rdispls))
    return take.result()


def alltoallw(comm, call):
    to, of = pairs(comm, call)
    (sdispls, sent), (rdispls, got) = placed(to, call), placed(of, call)
    give, take = Memory(call["give"], sent, comm.rank), Memory(call["take"], got, None)
    apart = [[x * memory.type.Get_extent()[1] for x in displs] for memory, displs in ((give, sdispls), (take, rdispls))]
    made(
        comm,
        call,
        "Alltoallw",
        [give.bytes, to, apart[0], [give.type] * comm.size],
        [take.bytes, of, apart[1], [take.type] * comm.size],
    )
    return take.result()


def items(comm, call, n):
    return (np.arange(n) * 5 + comm.rank * 3 + call["root"]).astype(call["code"]) % 4


def reduction(comm, call):
    name, n, op = call["name"], call["count"], OPS[call["op"]]
    root = call["root"] % comm.size
    give = items(comm, call, n * comm.size if name == "Reduce_scatter_block" else n)
    into = np.full(n, 9, give.dtype)
    sent = give
    if call["in_place"] and name not in ("Reduce", "Reduce_scatter_block"):
        into[:], sent = give, MPI.IN_PLACE
    if name == "Reduce":
        made(comm, call, name, sent, into if comm.rank == root else None, op=op, root=root)
    else:
        made(comm, call, name, sent, into, op=op)
    if name == "Exscan" and comm.rank == 0:
        return ""  # undefined
    return into.tolist()


def reduce_scatter(comm, call):
    counts = counts_of(comm, call)
    give, into = items(comm, call, sum(counts)), np.full(counts[comm.rank], 9, call["code"])
    made(comm, call, "Reduce_scatter", give, into, counts, op=OPS[call["op"]])
    return into.tolist()


def user_op(comm, call):
    """Products of matrices: the order of the ranks must be kept."""

    def multiply(left, right, _):
        a, b = (np.frombuffer(x, "i8").reshape(-1, 2, 2) for x in (left, right))
        b[:] = a @ b % 97

    op = MPI.Op.Create(multiply, commute=False)
    kind = MPI.INT64_T.Create_contiguous(4).Commit()
    give = (np.arange(4 * call["count"], dtype="i8") + comm.rank + 2).reshape(-1, 2, 2) % 97
    into = np.zeros_like(give)
    n = call["count"]
    made(comm, call, "Allreduce", [give, n, kind], [into, n, kind], op=op)
    op.Free()
    kind.Free()
    return into.tolist()


def located(comm, call):
    """The smallest or largest of all, and whose it is."""
    give = np.zeros(call["count"], [("value", "i4"), ("place", "i4")])
    give["value"], give["place"] = items(comm, {**call, "code": "i"}, call["count"]), comm.rank
    into = np.zeros_like(give)
    op = MPI.MAXLOC if call["root"] % 2 else MPI.MINLOC
    comm.Allreduce([give, MPI.INT_INT], [into, MPI.INT_INT], op=op)
    return into.tolist()


def objects(comm, call):
    root = call["root"] % comm.size
    value = {"rank": comm.rank, "data": list(range(comm.rank + call["count"]))}
    return [
        comm.bcast(value, root),
        comm.gather(value, root),
        comm.allgather(value),
        comm.scatter([[comm.rank, i] for i in range(comm.size)] if comm.rank == root else None, root),
        comm.alltoall([(comm.rank, i) for i in range(comm.size)]),
        comm.reduce([comm.rank], op=MPI.SUM, root=root),
        comm.allreduce(comm.rank + 1, op=MPI.PROD),
        comm.scan([comm.rank]),
        comm.exscan([comm.rank]),
    ]


def ring(comm, call):
    """Messages of all to all others at some distances, awaited in another order than they were sent."""
    distances, n = call["distances"], call["count"]
    takes, requests = [], []
    for i, d in enumerate(distances):
        take = Memory(call["take"], n + call["gap"], None)
        source = MPI.ANY_SOURCE if call["any"] else (comm.rank - d) % comm.size
        requests.append(comm.Irecv(take.spec, source=source, tag=i))
        takes.append(take)
    gives = []
    for i, d in reversed([*enumerate(distances)]):
        give = Memory(call["give"], n, comm.rank + i)
        send = getattr(comm, call["send"])
        requests.append(send(give.spec, dest=(comm.rank + d) % comm.size, tag=i))
        gives.append(give)
    statuses = [MPI.Status() for _ in requests]
    MPI.Request.Waitall(requests, statuses)
    facts = [
        (s.Get_source(), s.Get_tag(), s.Get_count(take.type), s.Get_elements(MPI.BYTE))
        for s, take in zip(statuses, takes, strict=False)
    ]
    return [facts, [take.result() for take in takes]]


def exchange(comm, call):
    d, n = call["distances"][0], call["count"]
    give, take = Memory(call["give"], n, comm.rank), Memory(call["take"], n, None)
    to, of = (comm.rank + d) % comm.size, (comm.rank - d) % comm.size
    if call["any"]:  # a chain instead of a ring
        to, of = (rank if good else MPI.PROC_NULL for rank, good in ((to, to > comm.rank), (of, of < comm.rank)))
    status = MPI.Status()
    comm.Sendrecv(give.spec, to, 5, take.spec, of, 5, status)
    both = Memory(call["give"], n, comm.rank)
    comm.Sendrecv_replace(both.spec, to, 6, of, 6)
    source = status.Get_source()
    return [source == MPI.PROC_NULL or source, status.Get_count(take.type), take.result(), both.result()]


def grid(comm, call):
    dims = MPI.Compute_dims(comm.size, 2)
    cart = comm.Create_cart(dims, periods=[call["any"], True], reorder=False)
    n = call["count"]
    give = np.arange(n, dtype="i") + 10 * cart.rank
    into = np.full(4 * n, -1, "i")
    made(cart, call, "Neighbor_allgather", give, into)
    each, others = np.arange(4 * n, dtype="i") + 100 * cart.rank, np.full(4 * n, -1, "i")
    made(cart, call, "Neighbor_alltoall", each, others)
    row = cart.Sub([False, True])
    facts = [
        dims,
        cart.coords,
        cart.Shift(1, 1),
        [x == MPI.PROC_NULL or x for x in cart.Shift(0, 1)],
        row.size,
        row.rank,
    ]
    row.Free()
    cart.Free()
    return [facts, into.tolist(), others.tolist()]


def between(comm, call):
    """An intercommunicator between the ranks of even and odd number."""
    if comm.size < 2:
        return []
    half = comm.Split(comm.rank % 2, comm.rank)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2, tag=9)
    n = call["count"]
    give, into = np.arange(n, dtype="i") + comm.rank, np.full(n * inter.remote_size, -1, "i")
    made(inter, call, "Allgather", give, into)
    total = np.zeros(n, "i")
    made(inter, call, "Allreduce", give, total)
    said = inter.allgather({"rank": comm.rank})
    merged = inter.Merge(comm.rank % 2 == call["root"] % 2)
    facts = [inter.size, inter.remote_size, merged.allgather(comm.rank)]
    for each in merged, inter, half:
        each.Free()
    return [facts, into.tolist(), total.tolist(), said]


def wrong(comm, call):
    """A call with a bad argument: the class of its error."""
    data, what = np.zeros(4, "i"), call["name"]
    tries = {
        "root": lambda: comm.Bcast(data, root=comm.size),
        "dest": lambda: comm.Send(data, dest=comm.size + 3),
        "source": lambda: comm.Recv(data, source=comm.size),
        "tag": lambda: comm.Send(data, dest=0, tag=-7),
        "count": lambda: comm.Send([data, -1, MPI.INT], dest=0),
        "type": lambda: comm.Send([data, 1, MPI.DATATYPE_NULL], dest=0),
        "op": lambda: comm.Allreduce(data, data.copy(), op=MPI.OP_NULL),
        "null": lambda: MPI.COMM_NULL.Barrier(),
        "group": lambda: comm.Get_group().Incl([comm.size]),
        "dims": lambda: comm.Create_cart([comm.size + 1]),
        "truncate": lambda: comm.Sendrecv(data, comm.rank, 0, data[:2].copy(), comm.rank, 0),
    }
    try:
        tries[what]()
    except MPI.Exception as error:
        return ERRORS[error.Get_error_class()]
    except ValueError as error:
        return type(error).__name__
    return "no error"


def communicator(call):
    kind, world = call["comm"], MPI.COMM_WORLD
    if kind == "split":
        return world.Split(world.rank % 2, -world.rank)
    if kind == "created":
        group = world.Get_group().Incl(list(range(world.size))[::-1])
        return world.Create(group)
    return world.Dup()


def main():
    world = MPI.COMM_WORLD
    while (calls := world.bcast(sys.stdin.readline() if world.rank == 0 else None)).strip():
        results = []
        for call in json.loads(calls):
            comm = communicator(call)
            results.append(globals()[call["do"]](comm, call))
            comm.Free()
        everyone = world.gather(results)
        if world.rank == 0:
            print(json.dumps(everyone), flush=True)


main()

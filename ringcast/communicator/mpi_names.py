"""MPI's names of the methods, so that errors can suggest ringcast's."""

from __future__ import annotations

_OTHERS = {
    "Get_rank": "rank",
    "Get_size": "size",
    "Reduce_scatter_block": "reduce_scatter",
    "Alltoallw": "alltoallv",
    "Sendrecv_replace": "sendrecv",
    "Split_type": "split_by_host",
    "Create_group": "create",
    "Create_graph": "graph",
    "Create_dist_graph": "graph",
    "Create_dist_graph_adjacent": "graph",
    "Create_cart": "cart",
    "Clone": "dup",
    "Disconnect": "free",
}
_SENDS = ("bsend", "rsend", "ssend")  # MPI's sorts of send; ringcast has one


def own_name(name: str) -> str:
    """Return ringcast's spelling of a method name of mpi4py's communicators, whether the method exists or not.

    >>> own_name("Get_rank"), own_name("Iallreduce"), own_name("Ssend")
    ('rank', 'iallreduce', 'send')
    """
    lower = name.lower()
    send = lower.removeprefix("i")
    if send in _SENDS:
        return "isend" if lower.startswith("i") else "send"
    return _OTHERS.get(name, lower)

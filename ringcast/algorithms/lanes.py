"""Describe full-lane algorithms, for hosts of several ranks; their schedules are in `ringcast.schedules.lanes`.

N hosts of c ranks. Where the hosts are not known, they are the rows of the mesh nearest to a square: N = a, c = b.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ringcast.algorithms.algorithm import Algorithm
from ringcast.algorithms.circulant import windows
from ringcast.algorithms.grama import subtrees
from ringcast.algorithms.load import Call, Load, combining, even, total, twice
from ringcast.algorithms.papers import LANES
from ringcast.algorithms.params import Params
from ringcast.schedules import lanes
from ringcast.schedules.grid import mesh_shape
from ringcast.schedules.placement import Hosts, members


@lru_cache(maxsize=64)
def _grid(size: int, hosts: Hosts) -> lanes.Grid:
    """Return the ranks of each host, or of each row of the mesh."""
    if hosts:
        return members(hosts)
    a, b = mesh_shape(size)
    return tuple(tuple(range(row * b, (row + 1) * b)) for row in range(a))


def _even_hosts(p: Params) -> str:
    """Return a reason against the call unless all hosts have equally many ranks; else ""."""
    ranks = [len(host) for host in _grid(p.size, p.hosts)]
    return "" if len(set(ranks)) == 1 else f"it needs as many ranks on each host, not {', '.join(map(str, ranks))}"


def _shape(p: Params) -> tuple[int, int]:
    """Return the number of hosts, and of the ranks on each."""
    grid = _grid(p.size, p.hosts)
    return len(grid), len(grid[0])


def _log(n: int) -> int:
    return (n - 1).bit_length()


def _bcast_rounds(p: Params) -> int:
    hosts, cores = _shape(p)
    return 2 * _log(cores) + (p.nblocks - 1 + _log(hosts) if hosts > 1 else 0)


def _bcast(call: Call) -> Load:
    """Return the load: the root's host scatters shares, which go along lanes in n blocks; each host gathers them."""
    _, cores = _shape(call.params)
    along = call.rounds - 2 * _log(cores)
    host = Call(Params(cores), call.nbytes, _log(cores))
    lane = even(along, -(-call.nbytes // (cores * call.params.nblocks)))
    return total([_within(call, subtrees(host)), lane, _within(call, windows(host))])


def _allgather_rounds(p: Params) -> int:
    return sum(map(_log, _shape(p)))


def _allgather(call: Call) -> Load:
    """Return the load: in the first rounds the heaviest lane counts; then parts of each lane move within each host."""
    grid = _grid(call.params.size, call.params.hosts)
    hosts, cores = len(grid), len(grid[0])
    parts = call.parts
    columns = [tuple(parts[ranks[i]] for ranks in grid) for i in range(cores)]
    lane = max((windows(Call(Params(hosts, counts=c), sum(c), 0)) for c in columns), key=lambda load: load.volume)
    sums = tuple(map(sum, columns))
    near = windows(Call(Params(cores, counts=sums), sum(sums), 0))
    return total([lane, _within(call, near._replace(frames=(cores - 1) * hosts))])


def _within(call: Call, load: Load) -> Load:
    """Return the load of messages within hosts, if these are known."""
    return load._replace(link=0, excess=0, local=load.volume) if call.params.hosts else load


TESTED = "tests/schedules/test_lanes.py"

_ALONG = "(n-1 + (a-1).bit_length())*(a > 1)"

BCAST = Algorithm(
    name="full_lane",
    collective="bcast",
    build=lambda p, rank: lanes.bcast(_grid(p.size, p.hosts), rank, nblocks=p.nblocks, root=p.root),
    rounds=_bcast_rounds,
    load=_bcast,
    paper=LANES,
    place="bcast; a hosts of b ranks",
    rounds_formula=f"2*(b-1).bit_length() + {_ALONG}",
    volume_formula=f"2*m*(b-1)/b + {_ALONG}*m/(b*n)",
    blocks=True,
    fits=_even_hosts,
    shared=True,
)
ALLGATHER = Algorithm(
    name="full_lane",
    collective="allgather",
    build=lambda p, rank: lanes.allgather(_grid(p.size, p.hosts), rank),
    rounds=_allgather_rounds,
    load=_allgather,
    paper=LANES,
    place="allgather; a hosts of b ranks",
    rounds_formula="(a-1).bit_length() + (b-1).bit_length()",
    volume_formula="m*(p-1)/p",
    equal_counts=True,
    fits=_even_hosts,
    shared=True,
)
ALGORITHMS = (
    BCAST,
    replace(
        BCAST,
        collective="reduce",
        build=lambda p, rank: lanes.reduce(_grid(p.size, p.hosts), rank, nblocks=p.nblocks, root=p.root),
        load=combining(_bcast),
        place="bcast backwards; a hosts of b ranks",
        commutative=True,
        elementwise=True,
    ),
    ALLGATHER,
    replace(ALLGATHER, collective="allgatherv", equal_counts=False),
    replace(
        ALLGATHER,
        collective="reduce_scatter",
        build=lambda p, rank: lanes.reduce_scatter(_grid(p.size, p.hosts), rank),
        load=combining(_allgather),
        place="allgather backwards; a hosts of b ranks",
        equal_counts=False,
        commutative=True,
        elementwise=True,
    ),
    replace(
        ALLGATHER,
        collective="allreduce",
        build=lambda p, rank: lanes.allreduce(_grid(p.size, p.hosts), rank),
        rounds=lambda p: 2 * _allgather_rounds(p),
        load=twice(_allgather),
        place="allreduce; a hosts of b ranks",
        rounds_formula=f"2*({ALLGATHER.rounds_formula})",
        volume_formula=f"2*{ALLGATHER.volume_formula}",
        equal_counts=False,
        commutative=True,
        elementwise=True,
    ),
)

"""Make fractional trees for ranks that can send or receive, but not both at a time: a run of r blocks every 2r+1 steps.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, announce it in section 3
and leave it to the full paper, which we have not seen; this construction is ours. The simplex model is a restriction of
the one-ported model of `ringcast.schedules.schedule`: no step has two halves. So these are schedules like all others,
for `verify` and `simulate`. If each duplex step became two simplex steps, a run would take 2r+2 steps.

r = `run`; L = 2r+1, the period. In L steps a rank receives r blocks, passes these on, and sends one to the right: it is
never idle. Let R[i] be the steps (mod L) in which member i of a group receives, X[i] the step in which it sends to the
right. In all other steps it passes blocks on, and member i+1 receives: R[i+1] is the complement of R[i] + X[i], and
R[i+2] = R[i] + X[i] - X[i+1]. All X[i] must differ, as the head on the right receives in these steps. For odd i they
are in R[0], for even i in its complement.

A pattern R is good if receiving and passing on alternate, so that blocks do not wait for long. We take for odd i every
second step of R[0], and for even i the next free step after each of the others. Then patterns in which steps alternate
one by one, or two by two, make patterns of these two kinds again, below and on the right. The ends of a pattern are
less smooth: until the last rank has the first run there are up to 3r steps more than twice the duplex tree's (all p <=
70, r <= 8).
"""

from __future__ import annotations

from collections.abc import Iterator

from ringcast._util.dataclass import dataclass
from ringcast.schedules.grouptree import tree_of
from ringcast.schedules.schedule import Nothing, Schedule, Step


@dataclass(frozen=True)
class SimplexTree(Schedule):
    """The steps of one rank, none with two halves."""

    nblocks: int
    steps: tuple[Step, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.nblocks,)

    def __len__(self) -> int:
        return len(self.steps)

    def _step(self, i: int) -> Step:
        return self.steps[i]


@dataclass(frozen=True)
class _Stream:
    """The blocks of the first run on their way to one rank; later runs follow every 2r+1 steps.

    Attributes:
        times: the steps in which they travel.
        blocks: their numbers, in this order.
        sources: their senders.
    """

    times: tuple[int, ...]
    blocks: tuple[int, ...]
    sources: tuple[int, ...]

    def messages(self, nblocks: int) -> Iterator[tuple[int, int, int]]:
        """Return time, block and source of the messages of all runs."""
        run = len(self.times)
        for time, first, source in zip(self.times, self.blocks, self.sources, strict=True):
            for nth, block in enumerate(range(first, nblocks, run)):
                yield time + nth * (2 * run + 1), block, source


def simplex_tree(size: int, *, run: int, nblocks: int, root: int = 0) -> list[Schedule]:
    """Return the schedules of all ranks: the broadcast of n blocks down the fractional tree."""
    if size == 1:
        return [Nothing(1, 0, (nblocks,))]
    steps: list[list[tuple[int, Step]]] = [[] for _ in range(size)]
    for to, stream in _streams([(root + v) % size for v in range(size)], run):
        for time, block, source in stream.messages(nblocks):
            steps[source].append((time, Step(to, (block,))))
            steps[to].append((time, Step(recv_from=source, recv=(block,))))
    ordered = [tuple(step for _, step in sorted(own, key=lambda timed: timed[0])) for own in steps]
    return [SimplexTree(size, rank, nblocks, ordered[rank]) for rank in range(size)]


def _streams(ranks: list[int], run: int) -> Iterator[tuple[int, _Stream]]:
    """Return the stream to each rank but the first."""
    tree = tree_of(ranks, run)
    assert tree is not None
    # As if the root received, too, each block in time to pass it on in steps 0, 2, ...
    at_root = _Stream(tuple(range(-1, 2 * run - 1, 2)), tuple(range(run)), (ranks[0],) * run)
    waiting = [(tree, at_root)]
    while waiting:
        group, at_head = waiting.pop()
        rights = _rights(at_head.times, run)
        streams = [at_head]
        for rank, right in zip(group.members, rights, strict=False):
            below = streams[-1]
            streams.append(_Stream(_passed(below.times, right, run), below.blocks, (rank,) * run))
        yield from zip(group.members[1:], streams[1:], strict=False)
        if group.down is not None:
            yield group.down.head, streams[-1]
            waiting.append((group.down, streams[-1]))
        if group.right is not None:
            beside = _beside(group.members, streams[:-1], rights)
            yield group.right.head, beside
            waiting.append((group.right, beside))


def _rights(times: tuple[int, ...], run: int) -> list[int]:
    """Return X[i] for each member, from the times at which the head receives: one of F, one of R, and so on."""
    length = 2 * run + 1
    received = {time % length for time in times}
    free = [x for x in range(length) if x not in received]
    rights = []
    for i, time in enumerate(times):
        if i % 2:
            rights.append(time % length)
        else:
            soonest = min(free, key=lambda x: (x - time - 1) % length)
            free.remove(soonest)
            rights.append(soonest)
    return rights


def _passed(times: tuple[int, ...], right: int, run: int) -> tuple[int, ...]:
    """Return the steps in which a rank passes on blocks that it gets at `times`: soon, in order, and not at `right`."""
    length = 2 * run + 1
    busy = {time % length for time in times} | {right}
    free = [x for x in range(length) if x not in busy]
    k = times[0] // length * run
    while any(free[(k + i) % run] + (k + i) // run * length <= time for i, time in enumerate(times)):
        k += 1
    return tuple(free[(k + i) % run] + (k + i) // run * length for i in range(run))


def _beside(members: tuple[int, ...], streams: list[_Stream], rights: list[int]) -> _Stream:
    """Return the stream to the head on the right: another block from each member, as early as that is possible.

    A member can send a block that it has received by then; members with the fewest such blocks choose first.
    """
    run = len(rights)
    length, begin = 2 * run + 1, streams[0].times[0] + 1
    while True:
        times = [begin + (right - begin) % length for right in rights]
        had = [sum(time < now for time in stream.times) for stream, now in zip(streams, times, strict=True)]
        order = sorted(range(run), key=had.__getitem__)
        if all(had[i] > nth for nth, i in enumerate(order)):
            break
        begin += 1
    sent = sorted((times[i], streams[0].blocks[nth], members[i]) for nth, i in enumerate(order))
    moments, blocks, sources = zip(*sent, strict=True)
    return _Stream(moments, blocks, sources)

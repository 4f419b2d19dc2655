"""Groups: ordered sets of ranks, and operations on them. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.constants import IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from ringcast.mpi.base.exceptions import ERR_ARG, ERR_GROUP, ERR_RANK, Exception
from ringcast.mpi.handles.handle import Handle, forget, predefined
from ringcast.mpi.unsupported import SESSIONS, Unsupported

__all__ = ["GROUP_EMPTY", "GROUP_NULL", "Group"]


class Ranks:
    """The members of a group: the job's rank of each of the group's ranks, and the job's rank of this process."""

    __slots__ = ("me", "members")

    def __init__(self, members: tuple[int, ...], me: int) -> None:
        self.members, self.me = members, me


class Group(Handle):
    """An ordered set of ranks."""

    _state: Ranks | None

    @classmethod
    def _of(cls, members: Iterable[int], me: int) -> Self:
        """Return the group of these ranks of the job; `me` is the caller's rank of the job."""
        return cls._of_state(Ranks(tuple(members), me))

    @property
    def _ranks(self) -> Ranks:
        if self._state is None:
            raise Exception(ERR_GROUP, "expected a group, got GROUP_NULL")
        return self._state

    @property
    def _members(self) -> tuple[int, ...]:
        return self._ranks.members

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self._members)

    def Get_rank(self) -> int:
        """Return the rank of the caller in the group; UNDEFINED if it is no member."""
        return self._index(self._ranks.me)

    size, rank = property(Get_size), property(Get_rank)

    def _index(self, rank: int) -> int:
        return self._members.index(rank) if rank in self._members else UNDEFINED

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """Return the ranks that these ranks have in another group, or in the group of all ranks of the job."""
        wanted = range(self.Get_size()) if ranks is None else ranks
        there = None if group is None else {rank: place for place, rank in enumerate(group._members)}
        return [self._translated(rank, there) for rank in wanted]

    def _translated(self, rank: int, there: dict[int, int] | None) -> int:
        if rank == PROC_NULL:
            return PROC_NULL
        in_job = self._members[self._checked(rank)]
        return in_job if there is None else there.get(in_job, UNDEFINED)

    def _checked(self, rank: Any) -> int:
        if not 0 <= rank < len(self._members):
            raise Exception(ERR_RANK, f"expected a rank in 0..{len(self._members) - 1}, got {safe_text(rank)}")
        return int(rank)

    def Compare(self, group: Group) -> int:
        """Return IDENT for the same ranks in the same order, SIMILAR in another order, else UNEQUAL."""
        if self._members == group._members:
            return IDENT
        return SIMILAR if set(self._members) == set(group._members) else UNEQUAL

    def Dup(self) -> Self:
        """Return another group of the same ranks."""
        return self._like(self._members)

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Self:
        """Return the ranks of the first group, then the ranks of the second one that are not in the first."""
        return cls._of(dict.fromkeys((*group1._members, *group2._members)), _asker(group1, group2))

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Self:
        """Return the ranks of the first group that are in the second one."""
        others = {*group2._members}
        return cls._of((rank for rank in group1._members if rank in others), _asker(group1, group2))

    Intersect = Intersection

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Self:
        """Return the ranks of the first group that are not in the second one."""
        others = {*group2._members}
        return cls._of((rank for rank in group1._members if rank not in others), _asker(group1, group2))

    def Incl(self, ranks: Sequence[int]) -> Self:
        """Return the group of these ranks, in this order."""
        chosen = [self._members[self._checked(rank)] for rank in ranks]
        if len({*chosen}) < len(chosen):
            raise Exception(ERR_RANK, f"expected different ranks, got {safe_text(ranks)}")
        return self._like(chosen)

    def Excl(self, ranks: Sequence[int]) -> Self:
        """Return the group without these ranks."""
        left_out = {self._members[self._checked(rank)] for rank in ranks}
        return self._like(rank for rank in self._members if rank not in left_out)

    def Range_incl(self, ranks: Sequence[Sequence[int]]) -> Self:
        """Return the group of the ranks in these ranges (first, last, stride)."""
        return self.Incl([rank for one in ranks for rank in _range(*one)])

    def Range_excl(self, ranks: Sequence[Sequence[int]]) -> Self:
        """Return the group without the ranks in these ranges (first, last, stride)."""
        return self.Excl([rank for one in ranks for rank in _range(*one)])

    def _like(self, members: Iterable[int]) -> Self:
        return type(self)._of(members, self._ranks.me)

    @classmethod
    def Create_from_session_pset(cls, session: Any, pset_name: str) -> Self:
        """Not supported."""
        raise Unsupported(SESSIONS)

    def Free(self) -> None:
        """Free the group."""
        forget(self._ranks)
        self._state = GROUP_EMPTY._state if self is GROUP_EMPTY else None


def _range(first: int, last: int, stride: int = 1) -> range:
    """Return the ranks from the first to the last one."""
    if not stride:
        raise Exception(ERR_ARG, f"expected a stride other than 0, got {(first, last, stride)}")
    return range(first, last + (1 if stride > 0 else -1), stride)


def _asker(group1: Group, group2: Group) -> int:
    return max(group1._ranks.me, group2._ranks.me)  # the empty group knows no rank: -1


GROUP_NULL = predefined(Group(), "GROUP_NULL")
GROUP_EMPTY = predefined(Group._of((), -1), "GROUP_EMPTY")

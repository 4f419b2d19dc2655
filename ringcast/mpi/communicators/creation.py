"""Making and freeing communicators."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Self

from ringcast._util.safe_text import safe_text
from ringcast.collectives import split
from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import (
    COMM_TYPE_HW_GUIDED,
    COMM_TYPE_HW_UNGUIDED,
    COMM_TYPE_RESOURCE_GUIDED,
    COMM_TYPE_SHARED,
    UNDEFINED,
)
from ringcast.mpi.base.contexts import Shared, shared
from ringcast.mpi.base.exceptions import ERR_ARG, ERR_COMM, ERR_GROUP, Exception
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.handles.attributes import Attributes
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.handles.handle import forget, is_predefined
from ringcast.mpi.handles.info import Info, hints
from ringcast.mpi.requests.calls import run
from ringcast.mpi.requests.request import Request
from ringcast.mpi.unsupported import Unsupported
from ringcast.wire.call import site_of


class Creation(CommHandle, Attributes):
    """Calls that make communicators of this one, and free it."""

    def Clone(self) -> Self:
        """Return another communicator of the same ranks, as `Dup`."""
        return self._duplicate("Clone", None)

    def Dup(self, info: Info | None = None) -> Self:
        """Return another communicator of the same ranks, with this one's topology and attributes."""
        return self._duplicate("Dup", info)

    def Dup_with_info(self, info: Info) -> Self:
        """Return another communicator of the same ranks, with these hints."""
        return self._duplicate("Dup_with_info", info)

    def Idup(self, info: Info | None = None) -> tuple[Self, Request]:
        """Begin `Dup`; the communicator can be used when the request is done."""
        new = type(self)()
        return new, Request.begun(self, "Idup", self._become(new, self._dup(hints(info))), site_of(sys._getframe(1)))

    Idup_with_info = Idup

    def _duplicate(self, operation: str, info: Info | None) -> Self:
        return type(self)._of_state(run(self, operation, self._dup(hints(info)), site_of(sys._getframe(2))))

    def _dup(self, info: dict[str, str]) -> Steps[Shared]:
        old = self._shared
        attributes = self._copied_attributes()
        new = yield from self._again()
        new.topology, new.attributes, new.info = old.topology, attributes, info
        return new

    def _again(self) -> Steps[Shared]:
        """Return a communicator of the same ranks."""
        return shared((yield from split.dup(self._group)), self._shared)

    @staticmethod
    def _become(new: Any, steps: Steps[Shared]) -> Steps[None]:
        """Make a null handle one of the communicator that these steps make."""
        new._state = yield from steps

    def Create(self, group: Group) -> Any:
        """Return a communicator of the ranks of a group; COMM_NULL on others. All ranks of this one call it."""
        return self._part("Create", self._create(group))

    def _create(self, group: Group) -> Steps[Shared | None]:
        ranks, mine = self._ranks_of(group), self._group.rank
        color, key = (self._color_of(ranks), ranks.index(mine)) if mine in ranks else (None, 0)
        return (yield from self._split(color, key))

    def _color_of(self, ranks: list[int]) -> int:
        """Return the colour of the members of a group; other ranks may give other groups at the same time."""
        return min(ranks)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Return a communicator of the ranks with this colour, ordered by their keys; COMM_NULL for UNDEFINED."""
        return self._part("Split", self._split_by(_color, color, key))

    def Split_type(self, split_type: int, key: int = 0, info: Info | None = None) -> Any:
        """Return a communicator of the ranks on this host, for COMM_TYPE_SHARED; COMM_NULL for UNDEFINED."""
        return self._part("Split_type", self._split_by(_color_of_type, split_type, key))

    def _split_by(self, color_of: Callable[[int], int | None], argument: int, key: int) -> Steps[Shared | None]:
        return (yield from self._split(color_of(argument), key))

    def _split(self, color: int | None, key: int) -> Steps[Shared | None]:
        """Return the communicator of the ranks with this colour."""
        group = yield from split.split(self._group, color, key, "Split")
        return None if group is None else shared(group, self._shared)

    def Free(self) -> None:
        """Free the communicator. No rank waits for the others."""
        mine = self._shared
        if is_predefined(self):
            raise Exception(ERR_COMM, f"expected a communicator that the program has made, got {mine.name}")
        self._delete_attributes()
        mine.retire()
        forget(mine)
        self._become_null()

    Disconnect = Free

    def _part(self, operation: str, steps: Steps[Shared | None]) -> Any:
        """Return the communicator that a call makes, of mpi4py's class for its kind, also if a subclass made it."""
        return self._plain(run(self, operation, steps, site_of(sys._getframe(2))))

    def _ranks_of(self, group: Group) -> list[int]:
        """Return the ranks that the members of a group have here; all of them must be ranks of this communicator."""
        members = Group(group)._members
        here = {self._group.in_job(rank): rank for rank in range(self._group.size)}
        if not here.keys() >= {*members}:
            raise Exception(ERR_GROUP, "expected a group of ranks of the communicator")
        return [here[rank] for rank in members]


def _color_of_type(split_type: int) -> int | None:
    if split_type == UNDEFINED:
        return None
    if split_type in (COMM_TYPE_HW_GUIDED, COMM_TYPE_HW_UNGUIDED, COMM_TYPE_RESOURCE_GUIDED):
        raise Unsupported("communicators by hardware (COMM_TYPE_HW_GUIDED, ...)")
    if split_type != COMM_TYPE_SHARED:
        raise Exception(ERR_ARG, f"expected COMM_TYPE_SHARED or UNDEFINED, got {safe_text(split_type)}")
    return split.color_of_host()


def _color(color: Any) -> int | None:
    if color == UNDEFINED:
        return None
    if color < 0:
        raise Exception(ERR_ARG, f"expected a colour from 0 on, or UNDEFINED, got {safe_text(color)}")
    return int(color)

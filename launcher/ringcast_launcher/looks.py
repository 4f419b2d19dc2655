"""Looks at all ranks from time to time, for the status line: hosts are asked, and what they tell is put together."""

from __future__ import annotations

from ringcast.glance import Glance
from ringcast_launcher.crews import Crews
from ringcast_launcher.orders import AskGlance
from ringcast_launcher.statusline import Status

LATE = 0.5  # seconds after which the line is drawn without the hosts that have not told


class Looks:
    """Asks the crews when the status line is due, and has it drawn when they have told."""

    def __init__(self, status: Status, crews: Crews) -> None:
        self._status, self._crews = status, crews
        self._told: dict[int, Glance] = {}  # by host
        self._asked: float | None = None  # when they were asked

    @property
    def due(self) -> float:
        """The time of the next `turn` at the latest."""
        return self._status.due if self._asked is None else self._asked + LATE

    def turn(self, now: float, up: int) -> None:
        """Do what is due; so many ranks are up."""
        if self._asked is None and self._status.due <= now:
            self._asked, self._told = now, {}
            self._crews.order_all(AskGlance())
        if self._asked is not None and (len(self._told) == len(self._crews) or now >= self._asked + LATE):
            self._status.tell(now, up, sum(self._told.values(), Glance()))
            self._asked = None

    def hear(self, host: int, told: Glance) -> None:
        """Take what a host tells."""
        self._told[host] = told

    def end(self) -> None:
        """Take the line away, and look no more."""
        self._status.end()

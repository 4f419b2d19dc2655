"""Signals for ranks that are threads: each has a gate of its own, and its signals are calls."""

from __future__ import annotations

from ringcast.engine.signal_gate import Handler, SignalGate


class ThreadGate(SignalGate):
    """The gate of a rank that is a thread of a test: `interrupt` is what the system does when a signal comes."""

    def interrupt(self, handler: Handler, number: int = 0) -> None:
        """Let a signal come here and now."""
        self.note(number, None, handler)

    def restore(self) -> None:
        """Nothing was installed."""

    def _wrap(self) -> None:
        """Nothing to install."""

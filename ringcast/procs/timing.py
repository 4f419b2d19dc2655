"""Define the time limits of failure detection, and check how they depend on one another; all users read `TIMING`.

Three chains have to fit together:

* A host is lost. Its agent ends the ranks when it hears nothing of the launcher; if the agent hangs, its watchdog ends
  them. Only after both must have acted does the launcher declare the ranks failed, so that no rank acts afterwards.
* A link between two ranks is dead. The control plane waits with its decision until the launcher would have found that
  one of the two hosts is lost, because then all ranks on that host are declared failed.
* A rank ends. Others notice a closed connection before they learn the reason from the launcher; they wait for it.

Imports nothing heavy: the watchdog is a process without third-party packages.
"""

from __future__ import annotations


class FailureTiming:
    """Limits in seconds. Limits that follow from others are properties."""

    beat: float = 1.0  # between two signs of life
    stall: float = 8.0  # a silent rank that does nothing counts as hung, unless the user says otherwise
    kill: float = 1.0  # the kernel ends a process that was killed

    launcher_silence: float = 8.0  # an agent that hears nothing of the launcher ends its ranks
    margin: float = 2.0  # by which a host counts as lost later than its agent must have ended its ranks

    control_silence: float = 10.0  # a rank that hears nothing of the control plane gives up
    control_unreachable: float = 7.0  # a rank to which no connection is left counts as failed
    control_answer: float = 4.0  # the other end's ZeroMQ answers, however busy the interpreter is

    link_doubt: float = 3.0  # a link without an answer is tried with new connections
    link_stall: float = 8.0  # these decide whether it is dead
    link_hopeless: float = 60.0  # a link is dead after this, though some of its connections are made
    link_closed: float = 4.0  # a connection was closed, and the launcher has not said why
    cut_off_beats: int = 6  # signs of life missed from a rank whose host may be cut off
    accusation_settle: float = 1.0  # after the first dead link, reports of other dead links are awaited

    settle: float = 0.5  # a rank that failed ends by itself, before the others learn of it
    report_grace: float = 0.8  # a rank that lost a connection waits for the reason
    grace: float = 1.0  # the others raise their own errors, before they are asked to end
    terminate: float = 2.5  # ranks end after SIGTERM, before they are killed

    interrupted: float = 5.0  # ranks end after a signal to the launcher, before they are killed …
    grace_period: float = 30.0  # … and after SIGTERM its sender (Slurm, Kubernetes) waits so long before SIGKILL
    ending: float = 5.0  # the launcher kills the ranks, takes their last output and reports

    @property
    def heard(self) -> float:
        """Seconds of silence after which one end gets no signs of life: the last answer may still be under way."""
        return 3 * self.beat

    @property
    def watchdog_silence(self) -> float:
        """Seconds without a sign of life after which an agent is hung: a healthy one has given up by then."""
        return self.launcher_silence + self.beat

    @property
    def host_silence(self) -> float:
        """Seconds of silence after which a host is lost; its ranks have ended by then."""
        return self.launcher_silence + self.heard + self.margin

    @property
    def accusation_patience(self) -> float:
        """Seconds from the first dead link until the launcher would have found a lost host."""
        return self.host_silence - self.link_stall

    @property
    def preempted(self) -> float:
        """Seconds that ranks have after SIGTERM to the launcher, so that it can report before it is killed itself."""
        return self.within(self.grace_period)

    def within(self, period: float) -> float:
        """Return the seconds that ranks have if the launcher has a grace period of `period` seconds."""
        return max(period - self.ending, period / 2)

    def broken(self) -> list[str]:
        """Return the relations that do not hold, as sentences; empty for limits that fit together."""
        relations = {
            "ranks are ended by the agent, or by its watchdog, before their host counts as lost": (
                self.heard + self.watchdog_silence + self.kill <= self.host_silence
            ),
            "an agent gives up before it counts as hung": self.launcher_silence < self.watchdog_silence,
            "a rank on a host that is cut off is known to be silent when a link to it is dead": (
                self.cut_off_beats * self.beat < self.link_stall + self.accusation_settle
            ),
            "new connections are tried before they decide": self.link_doubt < self.link_stall < self.link_hopeless,
            "the reason for a closed connection arrives before the wait for it ends": (
                self.settle < self.report_grace < self.link_closed
            ),
            "a rank is found hung before it would give up the control plane": self.stall < self.control_silence,
            "the launcher reports within the grace period": self.preempted + self.ending <= self.grace_period,
            "a rank without a connection is known before the control plane's silence": (
                self.control_answer < self.control_unreachable < self.control_silence
            ),
        }
        return [words for words, holds in relations.items() if not holds]


TIMING = FailureTiming()

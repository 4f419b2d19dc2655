"""Define the finding of a check: plain data, which travels as JSON."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum

from ringcast._util.dataclass import dataclass


class Verdict(StrEnum):
    """Whether a job would run. WARN: it may be slow, or fail in some cases; FAIL: it would not run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: the name of the check, the verdict, the facts, and the fix (empty if all is well)."""

    check: str
    verdict: Verdict
    text: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the object that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Finding:
        """Return the finding that another doctor has sent.

        Raises:
            ValueError: `data` is no finding.
        """
        match data:
            case {"check": str(check), "verdict": str(verdict), "text": str(text), "fix": str(fix)}:
                return cls(check, Verdict(verdict), text, fix)
        raise ValueError(f"no finding: {data!r:.100}")


def ok(check: str, text: str) -> Finding:
    """Return a good finding."""
    return Finding(check, Verdict.OK, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Return a finding with which a job runs, but with a drawback."""
    return Finding(check, Verdict.WARN, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Return a finding with which a job would not run."""
    return Finding(check, Verdict.FAIL, text, fix)

"""The finding of a check: plain data, that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum

from ringcast._util.dataclass import dataclass


class Verdict(StrEnum):
    """Whether a job would run: WARN is slower, or not always; FAIL not at all."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: what was looked at, the verdict, what was seen, and how to mend it (empty if all is well)."""

    check: str
    verdict: Verdict
    text: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Return what `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Finding:
        """Return the finding that another doctor has told.

        Raises:
            ValueError: it is none.
        """
        match data:
            case {"check": str(check), "verdict": str(verdict), "text": str(text), "fix": str(fix)}:
                return cls(check, Verdict(verdict), text, fix)
        raise ValueError(f"no finding: {data!r:.100}")


def ok(check: str, text: str) -> Finding:
    """Return a good finding."""
    return Finding(check, Verdict.OK, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Return a finding that is no obstacle, but a drawback."""
    return Finding(check, Verdict.WARN, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Return a finding with which a job would not run."""
    return Finding(check, Verdict.FAIL, text, fix)

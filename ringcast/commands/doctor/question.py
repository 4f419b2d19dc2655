"""Define the question of a doctor to one machine: whether it is fit for this job."""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.net import ports
from ringcast.net.ports import PortRange


@dataclass(frozen=True, slots=True)
class Question:
    """A job, as one of its hosts needs to know it.

    Attributes:
        size: ranks of the job.
        here: ranks on this machine.
        towards: host of the rendezvous.
        iface: as RINGCAST_IFACE.
        ports: as RINGCAST_PORTS.
    """

    size: int = 1
    here: int = 1
    towards: str = "127.0.0.1"
    iface: str = ""
    ports: PortRange | None = None

    def to_json(self) -> dict[str, object]:
        """Return the object that `from_json` reads."""
        told = {"size": self.size, "here": self.here, "towards": self.towards, "iface": self.iface}
        return {**told, "ports": str(self.ports or "")}

    @classmethod
    def from_json(cls, data: object) -> Question:
        """Return the question that another doctor asks.

        Raises:
            ValueError: `data` is no question.
        """
        match data:
            case {"size": int(p), "here": int(here), "towards": str(host), "iface": str(iface), "ports": str(range)}:
                return cls(p, here, host, iface, ports.parse(range) if range else None)
        raise ValueError(f"no question: {data!r:.100}")

"""The endpoint card: how a rank is reached."""

from __future__ import annotations

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EndpointCard:
    """Addresses and public key of a rank's inbox; one travels to all ranks, through the control plane."""

    address: str
    key: str = ""  # public; empty where nothing is encrypted
    memory: str = (
        ""  # its system, and its segment for ranks there, see `ringcast.transports.memory.segment`; empty: none …
    )
    near: str = ""  # … and its socket for them, see `ringcast.procs.colocation`; empty: none
    host: str = ""  # its kernel and the name of its host, where the address is a segment; empty: not known

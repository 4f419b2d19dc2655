"""The endpoint card: how a rank is reached."""

from __future__ import annotations

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EndpointCard:
    """Addresses and public key of a rank's inbox; one travels to all ranks, through the control plane."""

    address: str
    key: str = ""  # public; empty where nothing is encrypted
    # Its segment of shared memory for ranks of its own host, see `ringcast.transports.segment`; or, where that is its
    # address, its kernel and host.
    memory: str = ""
    near: str = ""  # its socket for ranks of its own host, see `ringcast.net.colocation`; empty: none

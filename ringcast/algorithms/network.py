"""Define the constants of a transport, by which the cost model predicts times, and their values without calibration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True)
class Network:
    """The constants of a transport."""

    alpha: float  # seconds per round
    beta: float  # seconds per byte
    gamma: float  # seconds per byte combined
    frame: float  # seconds per frame of a message
    grant: float = 0.0  # additional seconds per granted round
    beta_long: float = 0.0  # additional seconds per byte of a message beyond the first KNEE
    local: float = 0.0  # seconds per byte between ranks of one host, where hosts have several
    link_beta: float = 0.0  # seconds per byte of a link beyond the first KNEE: a lower bound for all rounds together
    lookahead: int = (
        0  # bytes that may be missing when the next message is granted or sent; see `ringcast.protocol.machine`
    )
    ranks_per_cpu: float = 1.0  # at least 1; more where ranks with shared memory also share processors

    def __hash__(self) -> int:
        """Return the hash of one constant, which is fast: every call looks its choice up, among one or two networks."""
        return hash(self.alpha)


# The constants without calibration. threads, shm, ipc: measured with 4 ranks that share two cores; shm by the compiled
# lane; gamma is 0 or little where data that is combined while it arrives takes no time of its own. On threads, with
# 30 MB and more, the caches hold blocks but not long messages, which took twice as long per byte; with less data there
# was no difference, so beta_long is less. sockets, tcp: a cluster of 1 Gbit/s. The square root in the number of blocks
# forgives: on links of a tenth or ten times that rate it is wrong by a factor of three. Long messages took a tenth more
# per byte on emulated links of 20 to 100 Mbit/s.
NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        "threads": Network(alpha=100e-6, beta=0.5e-9, gamma=0, frame=3e-6, grant=50e-6, beta_long=0.3e-9),
        "shm": Network(alpha=10e-6, beta=0.27e-9, gamma=0.12e-9, frame=4e-6),
        "ipc": Network(alpha=270e-6, beta=1.26e-9, gamma=0, frame=120e-6, grant=400e-6, beta_long=0.84e-9),
        "sockets": Network(
            alpha=100e-6, beta=1 / 118e6, gamma=1 / 4e9, frame=5e-6, grant=60e-6, beta_long=0.1 / 118e6, local=0.2e-9
        ),
        "tcp": Network(
            alpha=150e-6, beta=1 / 118e6, gamma=1 / 4e9, frame=5e-6, grant=100e-6, beta_long=0.1 / 118e6, local=0.2e-9
        ),
    }
)

# A deterministic job chooses its reductions by these constants alone, so that the order of combination does not depend
# on the machine. They must never change. Of all of NETWORKS they cost the other transports least: by the model at most
# 1.6 times on 2 to 16 ranks of one host or of several, where the constants of sockets cost shared memory 3 times.
FIXED = Network(alpha=100e-6, beta=0.5e-9, gamma=0, frame=3e-6, grant=50e-6, beta_long=0.3e-9)

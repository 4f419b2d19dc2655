"""A random fault in a random job on many hosts, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

HOSTS = 16
SIZES = (2, 3, 3, 4, 5, 6, 8, 16)  # hosts of a job
WAYS = {  # how a rank ends, and the job's exit code if that ends the job
    "SIGKILL": 137,
    "SIGSTOP": 1,
    "sys.exit(3)": 3,
    "sys.exit(0)": 1,
    "raise": 1,
    "os._exit(0)": 1,
    "os.abort()": 134,
    "link cut": 1,  # the whole host of the rank is lost, by this and what follows
    "agent killed": 1,
    "agent stopped": 1,
}
OF_HOSTS = "link cut", "agent killed", "agent stopped"
AT_CALLS = "sys.exit(3)", "sys.exit(0)", "raise"  # what a program does between two calls, and not within one


@dataclass(frozen=True)
class Fault:
    """A fault of a rank or its host, `depth` Python function calls after the start of the rank's call `number`."""

    slots: tuple[tuple[int, int], ...]  # host and number of its ranks
    rank: int
    way: str
    number: int
    depth: int
    go_on: bool  # the others shrink the communicator, and finish

    def __str__(self) -> str:
        then = "continue" if self.go_on else "abort"
        return f"{self.way} of rank {self.rank} on -H {self.names} in call {self.number} after {self.depth}, {then}"

    @classmethod
    def drawn(cls, seed: int) -> Fault:
        """Return the fault of a seed. The launcher is on host 0, which stays."""
        random = Random(f"fault {seed}")
        slots = tuple((host, random.choice([1, 1, 2])) for host in random.sample(range(HOSTS), random.choice(SIZES)))
        way = random.choice(list(WAYS))
        ranks = [rank for rank, host in enumerate(_hosts(slots)) if host or way not in OF_HOSTS]
        depth = 0 if way in AT_CALLS else random.randrange(3000)
        return cls(slots, random.choice(ranks), way, random.randrange(30), depth, random.random() < 0.5)

    @property
    def code(self) -> int:
        """The job's exit code. Who leaves by `sys.exit` has finished: its code counts also where the others go on."""
        return 0 if self.go_on and self.way != "sys.exit(3)" else WAYS[self.way]

    @property
    def names(self) -> str:
        """The hosts as the launcher takes them."""
        return ",".join(f"h{host}:{ranks}" for host, ranks in self.slots)

    @property
    def host(self) -> int:
        return _hosts(self.slots)[self.rank]

    @property
    def lost(self) -> set[int]:
        """The ranks that fail."""
        hosts = _hosts(self.slots)
        return {rank for rank, host in enumerate(hosts) if host == self.host} if self.way in OF_HOSTS else {self.rank}

    @property
    def survivors(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(len(_hosts(self.slots))) if rank not in self.lost)


def _hosts(slots: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the host of each rank."""
    return [host for host, ranks in slots for _ in range(ranks)]

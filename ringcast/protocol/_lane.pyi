SOURCE: int  # the CRC of `_lane.c`, as it was compiled

class Lane:
    """The compiled lane (`_lane.c`)."""

    def __init__(
        self,
        rank: int,
        size: int,
        nonce: int,
        marks: tuple[int, int, int],
        limits: tuple[int, int, int, int],
        *words: object,
    ) -> None: ...
    def map(self, *memory: object) -> None: ...
    def link(self, peer: int, /, *memory: object) -> None: ...
    def put(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        fingerprint: int,
        payload: bytes | bytearray | memoryview | None,
        joined: int = 0,
        /,
    ) -> bool: ...
    def take(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, total: int, patience: float, /
    ) -> bytes | None: ...
    def look(
        self, peer: int, context: int, tag: int, fingerprint: int, joined: int, patience: float, /
    ) -> bytes | None: ...
    def accept(self, peer: int, /) -> None: ...
    def offer(
        self, peer: int, context: int, number: int, ordinal: int, fingerprint: int, frames: object, /
    ) -> bool: ...
    def fetch(self, peer: int, memory: object, /) -> bool: ...
    def settle(self, context: int, number: int, fingerprint: int, patience: float, /) -> bool: ...
    def prepare(self, moves: object, memory: object, split: int = 0, /) -> object: ...
    def run(
        self,
        program: object,
        context: int,
        number: int,
        fingerprint: int,
        patience: float,
        data: object = None,
        calls: object = None,
        passed: int = -1,
        /,
    ) -> int: ...
    def offered(self) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...

"""Files: one rank's files on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal

from ringcast.collectives.stage import check_root
from ringcast.errors import ArgumentError
from ringcast.requests.calls import Calls

if TYPE_CHECKING:
    from ringcast.transfer.report import CopyReport, Progress


class Files(Calls):
    """Copies of files, which this room only passes on: see `ringcast.transfer`."""

    def bcast_file(
        self,
        source: str | PathLike[str] | Sequence[str | PathLike[str]],
        target: str | PathLike[str],
        root: int = 0,
        *,
        recursive: bool = False,
        preserve: bool = False,
        verify: Literal["full", "size", "none"] = "full",
        keep_going: bool = False,
        rate: float | None = None,
        compress: Literal["auto", "zstd", "none"] = "auto",
        sparse: bool = False,
        slow: float | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> CopyReport:
        """Copy files of the root to all other ranks, in segments of 64 MB, each hashed at both ends.

        What is there already is compared and not sent again, so that a copy that was broken off goes on. When another
        rank than the root is lost, the others get everything (the launcher's `--on-failure continue` lets them go on),
        and this communicator is given up: call `shrink`.

        Cost: per segment that is missing anywhere a broadcast of its bytes, in pieces of 4 MB, of which three are under
        way. Memory: 32 MB, and some 10 MB where pieces are compressed.

        Args:
            source: path of a file, or of several, on the root; other ranks' are ignored. `NAME/` with `recursive`
                means what is in the directory.
            target: path on each other rank: a directory if it ends with "/" or is one; for several sources it is made.
            recursive: directories are copied with all that is in them.
            preserve: keep times of changes and all permission bits.
            verify: how what is there is judged: "full" by SHA-256, "size" by size (and time, with `preserve`), "none":
                not at all, all is sent.
            keep_going: leave out ranks that cannot take the files, instead of sending nothing.
            rate: most bytes that the root sends in a second.
            compress: "zstd": pieces travel compressed where that makes them shorter; it needs Python 3.14, or the
                package zstandard, on every rank. "auto": if every rank has it, and while it makes the copy faster, as
                the root measures it. "none": never.
            sparse: in files that are new, blocks of 4 KiB that are zero become holes; no room is allocated for them.
            slow: seconds. A rank is left out when the others have waited so long for its disk, beyond what they wait
                for the quickest one; what has arrived there is kept. None: they wait as long as it takes.
            progress: called on the root after each piece.

        Returns:
            A CopyReport, alike on all ranks; its `ok` says whether every rank has every byte.

        Raises:
            ArgumentError: there is no such root, no such way to verify or to compress, or `slow` is not positive.
            TransferError: the root cannot read its files, or was lost; or a rank cannot take them, or lacks zstd.

        >>> comm.bcast_file("/etc/hostname", "/tmp/").ok
        True
        """
        from ringcast.transfer.copying import copy_files  # hashlib and threads: if needed
        from ringcast.transfer.options import Options, reason_not

        self._check("bcast_file")
        check_root(self._group, "bcast_file", root)
        options = Options(recursive, preserve, verify, keep_going, rate, compress, sparse, slow)
        if problem := reason_not(options):
            raise ArgumentError(self._group.endpoint.rank, "bcast_file", *problem)
        sources = [fspath(each) for each in ([source] if isinstance(source, (str, PathLike)) else source)]
        return copy_files(self, sources, fspath(target), root, options, progress)  # type: ignore[arg-type]

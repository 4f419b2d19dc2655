"""Set the mode and the time of a copied file or directory."""

from __future__ import annotations

import os
import stat

from ringcast.transfer.manifest import Entry, Manifest


class Attributes:
    """Gives files and directories their modes and, with `preserve`, their times of change."""

    def __init__(self, manifest: Manifest, preserve: bool) -> None:
        self._owner, self._preserve = manifest.owner, preserve
        self._umask = os.umask(0)
        os.umask(self._umask)

    def give(self, file: int, entry: Entry) -> None:
        """Set the attributes of a file or directory that is open."""
        os.fchmod(file, self._mode(file, entry))
        if self._preserve:
            os.utime(file, ns=(entry.mtime, entry.mtime))

    def _mode(self, file: int, entry: Entry) -> int:
        """Return the mode; set-user stays only where the owner is the source's, set-group where the group is."""
        if not self._preserve:
            return entry.mode & 0o777 & ~self._umask
        if not entry.mode & (stat.S_ISUID | stat.S_ISGID):
            return entry.mode
        status, (uid, gid) = os.fstat(file), self._owner
        foreign = (status.st_uid != uid and stat.S_ISUID) | (status.st_gid != gid and stat.S_ISGID)
        return entry.mode & ~foreign

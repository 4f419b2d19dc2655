"""Tricks of a second user on `ringcast cp`, rsync and scp: the table of docs/operate/security.md says what each does.

Root copies to a directory as /tmp, or to one of the second user, or from one; each trick is played on each program.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import needs, second_user
from support.fleets import Fleet, fleet, until
from support.patience import patience
from support.places import ROOT

pytestmark = pytest.mark.live

PROGRAMS = {
    "ringcast cp": [sys.executable, "-m", "ringcast", "cp", "-r", "-p", "{source}", "-H", "h1:{target}"],
    "rsync": ["rsync", "-rlpt", "{source}", "h1:{target}"],
    "scp": ["scp", "-r", "-p", "{source}", "h1:{target}"],
}
SLOWLY = {"ringcast cp": ["--limit-rate", "2m"], "rsync": ["--bwlimit=2000"], "scp": ["-l", "16000"]}
WAITS = 40  # seconds, after which a program that copies a few bytes waits for ever
SECRET = b"for root only\n"
VICTIM = b"private\n"
SAFE = "copied safely", "refused", "the link is copied"


class Stage:
    """Directories for one trick, and the program that it is played on."""

    def __init__(self, hosts: Fleet, program: str, folder: Path) -> None:
        self._hosts, self._program = hosts, program
        self.common, self.his, self.private = (folder / name for name in ("common", "his", "private"))
        for made, mode in (self.common, 0o1777), (self.his, 0o755), (self.private, 0o700):
            made.mkdir()
            made.chmod(mode)
        os.chown(self.his, second_user.UID, second_user.UID)
        self.source = self._written(self.private / "s", SECRET)
        self.victim = self._written(self.private / "victim", VICTIM)
        self.code = 0

    def copy(self, source: Path, target: Path, meanwhile: Callable[[], object] | None = None) -> None:
        """Copy a file or tree into a directory; `meanwhile` happens when the first bytes have arrived."""
        words = [word.format(source=source, target=f"{target}/") for word in PROGRAMS[self._program]]
        at = words.index("cp" if "cp" in words else self._program) + 1
        command = [*words[:at], *(SLOWLY[self._program] if meanwhile else []), *words[at:]]
        process = self._hosts.bed.start(
            0, ["timeout", f"{patience(WAITS):g}", *command], env=self._hosts.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if meanwhile is not None:
            until(lambda: process.poll() is not None or any(p.stat().st_size for p in _files(target)))
            meanwhile()
        self.code = process.wait()

    def outcome(self, copy: Path) -> str:
        """Say what became of the victim and of the copy of the secret file."""
        if self.code == 124:
            return "waits for ever"
        if not self.victim.exists() or self.victim.read_bytes() != VICTIM:
            return "overwrites a private file of root"
        if stat.S_IMODE(self.victim.stat().st_mode) != 0o600:
            return "makes a private file of root readable"
        if not copy.is_file():
            assert self.code
            return "refused"
        if copy.stat().st_uid:
            return "he reads and changes the copy" if copy.read_bytes() == SECRET else "refused"
        return "copied safely" if copy.read_bytes() == SECRET else "refused"

    def _written(self, path: Path, content: bytes, mode: int = 0o600) -> Path:
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def tree(self, where: Path) -> Path:
        """Make a tree: a large file, and a directory with the secret one, which is copied last."""
        (where / "tree" / "deep").mkdir(parents=True)
        (where / "tree" / "a").write_bytes(os.urandom(6_000_000))
        self._written(where / "tree" / "deep" / "s", SECRET)
        return where / "tree"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def file_at_the_name(stage: Stage) -> str:
    """His file, which all can read and write, has the name of the copy"""
    second_user.plant(stage.common / "s")
    stage.copy(stage.source, stage.common)
    return stage.outcome(stage.common / "s")


def right_file_at_the_name(stage: Stage) -> str:
    """The same, with the content, mode and time of the source"""
    shutil.copy2(stage.source, stage.common / "s")
    os.chown(stage.common / "s", second_user.UID, second_user.UID)
    stage.copy(stage.source, stage.common)
    return stage.outcome(stage.common / "s")


def hard_link_at_the_name(stage: Stage) -> str:
    """A hard link of a private file of root has the name of the copy"""
    os.link(stage.victim, stage.common / "s")
    stage.copy(stage.source, stage.common)
    return stage.outcome(stage.common / "s")


def link_at_the_name(stage: Stage) -> str:
    """A link to a private file of root has the name of the copy"""
    second_user.act("os.symlink(sys.argv[1], sys.argv[2])", stage.victim, stage.common / "s")
    stage.copy(stage.source, stage.common)
    return stage.outcome(stage.common / "s")


def pipe_at_the_name(stage: Stage) -> str:
    """A pipe has the name of the copy"""
    second_user.act("os.mkfifo(sys.argv[1], 0o666)", stage.common / "s")
    stage.copy(stage.source, stage.common)
    return stage.outcome(stage.common / "s")


def link_for_a_directory(stage: Stage) -> str:
    """A link to a directory of root has the name of the tree"""
    tree = stage.tree(stage.private)
    (stage.private / "outside" / "deep").mkdir(parents=True)
    stage.victim = stage.victim.rename(stage.private / "outside" / "deep" / "s")
    second_user.act("os.symlink(sys.argv[1], sys.argv[2])", stage.private / "outside", stage.common / "tree")
    stage.copy(tree, stage.common)
    return stage.outcome(stage.common / "tree" / "deep" / "s")


def directory_exchanged(stage: Stage) -> str:
    """In a directory of his, he exchanges a directory for a link to one of root while the copy runs"""
    tree = stage.tree(stage.private)
    (stage.private / "outside").mkdir()
    stage.victim = stage.victim.rename(stage.private / "outside" / "s")
    second_user.act("os.makedirs(sys.argv[1])", stage.his / "tree" / "deep")
    deep = stage.his / "tree" / "deep"
    stage.copy(tree, stage.his, lambda: second_user.exchange(deep, stage.private / "outside"))
    deep = deep if not deep.is_symlink() else stage.his / "tree" / "deep.away"
    return stage.outcome(deep / "s")


def set_user_program(stage: Stage) -> str:
    """From a directory of his, a program with the set-user bit"""
    second_user.plant(stage.his / "s", SECRET, 0o4755)
    stage.copy(stage.his / "s", stage.common)
    copy = stage.common / "s"
    if copy.exists() and copy.stat().st_uid == 0 and copy.stat().st_mode & stat.S_ISUID:
        return "all can run it as root"
    return stage.outcome(copy)


def link_in_the_source(stage: Stage) -> str:
    """In a tree of his, a link to a private file of root"""
    second_user.act(
        "os.makedirs(sys.argv[2]); os.symlink(sys.argv[1], sys.argv[2] + '/s')", stage.victim, stage.his / "t"
    )
    stage.copy(stage.his / "t", stage.common)
    copy = stage.common / "t" / "s"
    if copy.is_symlink():
        return "the link is copied"
    return "copies the private file" if copy.exists() else stage.outcome(copy)


def source_exchanged(stage: Stage) -> str:
    """In a tree of his, he exchanges a file of mode 0644 for a link to a private file of root while the copy runs"""
    tree = stage.tree(stage.his)
    stage._written(tree / "deep" / "s", b"x" * len(VICTIM), 0o644)
    os.utime(tree / "deep" / "s", ns=(stage.victim.stat().st_mtime_ns,) * 2)
    for path in tree, tree / "deep":
        os.chown(path, second_user.UID, second_user.UID)
    stage.copy(tree, stage.common, lambda: second_user.exchange(tree / "deep" / "s", stage.victim))
    copy = stage.common / "tree" / "deep" / "s"
    if copy.is_file() and not copy.is_symlink() and copy.read_bytes() == VICTIM:
        return "all read the private file" if second_user.reads(copy) else "copies the private file"
    return "the link is copied" if copy.is_symlink() else stage.outcome(copy)


TRICKS = (
    file_at_the_name, right_file_at_the_name, hard_link_at_the_name, link_at_the_name, pipe_at_the_name,
    link_for_a_directory, directory_exchanged, set_user_program, link_in_the_source, source_exchanged,
)  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    needs.root()
    needs.programs([name for name in ("rsync", "scp") if not shutil.which(name)], "rsync openssh-client")
    with fleet("2", tmp_path_factory.mktemp("beside")) as made:
        yield made


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_the_table_says_what_each_program_does(hosts: Fleet, trick: Callable[[Stage], str]) -> None:
    found: list[str] = []
    for program in PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
            Path(name).chmod(0o755)
            found.append(trick(Stage(hosts, program, Path(name))))
    assert found[0] in SAFE
    page = (ROOT / "docs" / "operate" / "security.md").read_text()
    if all(version in page for version in versions()):  # others may do otherwise
        assert f"| {trick.__doc__} | {' | '.join(found)} |\n" in page


def versions() -> tuple[str, str]:
    """Return the versions of rsync and scp, as the page names them."""
    rsync = subprocess.run(["rsync", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr.split()[0]
    return f"`rsync -rlpt` ({rsync})", f"({ssh.replace('_', ' ')})"

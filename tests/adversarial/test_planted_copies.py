"""A second user at both ends of a copy by root: in the directories that it goes to, and that it comes from.

What he plants before, or exchanges between two steps, gets him nothing: no file that he owns is kept, written to or
trusted, nothing outside is read, written or made readable, and no copy waits for him. The kernel's own protection
(fs.protected_symlinks and the like) forbids some of these tricks; none of the tests needs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast import Communicator
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK
from ringcast.transfer.source import Source
from support import needs, second_user

pytestmark = pytest.mark.usefixtures("nothing_left")

SECRET = b"for root only "
SIZES = len(SECRET), 2 * CHUNK + 5
MANY = 70  # files that become whole at once
VERIFY = "full", "size", "none"


@pytest.fixture
def his() -> Iterator[Path]:
    """A directory of the second user, as /home/his: he has made it himself."""
    needs.root()
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield owned_directory(Path(name, "his"))


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A directory that no other user can enter."""
    tmp_path.chmod(0o700)
    return tmp_path


def secret(path: Path, size: int = len(SECRET), mode: int = 0o600) -> Path:
    """Make a file of root's."""
    path.write_bytes((SECRET * (size // len(SECRET) + 1))[:size])
    path.chmod(mode)
    return path


def copied(source: Path | str, target: Path | str, **options: Any) -> None:
    """Copy by a job of two ranks, which are threads.

    Raises:
        TransferError: some file was not copied.
    """

    def work(comm: Communicator) -> None:
        report = comm.bcast_file(os.fspath(source), os.fspath(target), recursive=True, **options)
        if not report.ok:
            raise ringcast.TransferError(report.ranks[0].error)

    ringcast.run(work, 2, backend="threads")


def hook(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, act: Callable[[], object]) -> None:
    """Let something happen once, just before a step of a copy."""
    step, left = getattr(kind, method), [act]

    def stepped(self: Any, *arguments: Any) -> Any:
        if left:
            left.pop()()
        return step(self, *arguments)

    monkeypatch.setattr(kind, method, stepped)


def part_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.ringcast-part")


def is_copy(copy: Path, source: Path) -> bool:
    """Return whether there is a copy that belongs to root, has no other name, and can be read by the right users."""
    status = copy.lstat()
    whole = stat.S_ISREG(status.st_mode) and copy.read_bytes() == source.read_bytes()
    alone = (status.st_uid, status.st_nlink) == (0, 1)
    return whole and alone and stat.S_IMODE(status.st_mode) == stat.S_IMODE(source.stat().st_mode)


def owned(path: Path) -> Path:
    """Give a file or directory to the second user."""
    os.lchown(path, second_user.UID, second_user.UID)
    return path


def owned_directory(path: Path) -> Path:
    path.mkdir()
    return owned(path)


# What he plants at the destination before.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("verify", VERIFY)
@pytest.mark.parametrize("place", ["part", "name"])
@pytest.mark.parametrize("kind", ["file", "hard link", "pipe", "link"])
def test_planted_files_get_nothing(common: Path, private: Path, size: int, verify: str, place: str, kind: str) -> None:
    source = secret(private / "s", size)
    planted = common / "s" if place == "name" else part_of(common / "s")
    his = common / "his"
    second_user.plant(his, b"x" * size)
    os.utime(his, ns=(source.stat().st_mtime_ns, source.stat().st_mtime_ns))
    if kind == "file":
        his.rename(planted)
    elif kind == "hard link":
        os.link(his, planted)
    elif kind == "link":
        second_user.act("os.symlink('his', sys.argv[1])", planted)
    else:
        second_user.act("os.mkfifo(sys.argv[1], 0o666)", planted)
    copied(source, f"{common}/", verify=verify)
    assert is_copy(common / "s", source)
    assert not second_user.reads(common / "s")
    assert not part_of(common / "s").exists()
    if his.exists():
        assert his.read_bytes() == b"x" * size


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("place", ["part", "name"])
def test_a_name_that_others_gave_a_private_file_is_not_used(
    common: Path, private: Path, place: str, preserve: bool
) -> None:
    victim = secret(common / "victim")  # which he cannot read, but give another name
    source = secret(private / "s", mode=0o644)
    planted = common / "s" if place == "name" else part_of(common / "s")
    os.link(victim, planted)
    times = victim.stat().st_mtime_ns
    os.utime(source, ns=(times, times))
    copied(source, f"{common}/", verify="size", preserve=preserve)
    assert is_copy(common / "s", source)
    assert (victim.stat().st_ino, stat.S_IMODE(victim.stat().st_mode)) != ((common / "s").stat().st_ino, 0o644)
    assert not second_user.reads(victim)


@pytest.mark.parametrize("place", ["part", "name"])
def test_many_good_files_do_not_become_pipes(common: Path, private: Path, place: str) -> None:
    (private / "tree").mkdir()
    (common / "tree").mkdir(mode=0o777)
    (common / "tree").chmod(0o1777)
    names = [f"{number:03}" for number in range(MANY)]
    for name in names:
        secret(private / "tree" / name)
    there = [common / "tree" / name if place == "name" else part_of(common / "tree" / name) for name in names]
    second_user.act("for path in sys.argv[1:]: os.mkfifo(path, 0o666)", *there)
    copied(private / "tree", f"{common}/")
    assert all(is_copy(common / "tree" / name, private / "tree" / name) for name in names)


@pytest.mark.parametrize("verify", VERIFY)
def test_a_file_of_the_right_content_that_he_owns_is_replaced(common: Path, private: Path, verify: str) -> None:
    source = secret(private / "s", 2 * CHUNK + 5, mode=0o644)
    copied(source, f"{common}/", preserve=True)
    owned(common / "s")
    copied(source, f"{common}/", preserve=True, verify=verify)
    assert is_copy(common / "s", source)


def test_a_link_that_leads_to_the_right_place_and_is_his_is_replaced(common: Path, private: Path) -> None:
    (private / "tree").mkdir()
    (private / "tree" / "link").symlink_to("somewhere")
    copied(f"{private}/tree/", common)
    owned(common / "link")
    copied(f"{private}/tree/", common)
    assert (common / "link").lstat().st_uid == 0
    assert (common / "link").readlink() == Path("somewhere")


@pytest.mark.parametrize("kind", ["directory", "link"])
@pytest.mark.parametrize("below", [False, True])
def test_a_directory_that_he_laid_where_all_write_is_refused(
    common: Path, private: Path, kind: str, below: bool
) -> None:
    (private / "tree").mkdir()
    secret(private / "tree" / "s")
    (private / "outside").mkdir()
    if kind == "directory":
        second_user.act("os.mkdir(sys.argv[1])", common / "tree")
    else:
        second_user.act("os.symlink(sys.argv[1], sys.argv[2])", private / "outside", common / "tree")
    source, target = (private / "tree", f"{common}/") if below else (f"{private}/tree/", f"{common}/tree/")
    with pytest.raises(ringcast.RunFailed, match=r"belongs to another user|is there, and no directory"):
        copied(source, target)
    assert not os.listdir(private / "outside")
    assert not os.listdir(common / "tree")


def test_a_user_who_may_not_replace_what_another_planted_is_told(
    common: Path, his: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_user.plant(his / "s")
    (common / "s").write_text("of root")
    hook(monkeypatch, Destination, "prepare", lambda: os.seteuid(second_user.UID))
    try:
        with pytest.raises(ringcast.RunFailed, match="belongs to another user, and cannot be replaced"):
            copied(his / "s", f"{common}/")
    finally:
        os.seteuid(0)
    assert (common / "s").read_text() == "of root"


# What he exchanges at the destination between two steps.


@pytest.mark.parametrize("step", ["reserve", "write", "settle", "finish"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("preserve", [False, True])
def test_a_directory_exchanged_for_a_link_leads_nowhere(
    his: Path, private: Path, monkeypatch: pytest.MonkeyPatch, step: str, size: int, preserve: bool
) -> None:
    (private / "tree" / "deep").mkdir(parents=True)
    secret(private / "tree" / "deep" / "s", size, mode=0o644)
    (private / "outside").mkdir(mode=0o700)
    victim = secret(private / "outside" / "s")
    owned_directory(his / "tree")
    deep = owned_directory(his / "tree" / "deep")
    hook(monkeypatch, Destination, step, lambda: second_user.exchange(deep, private / "outside"))
    try:
        copied(private / "tree", f"{his}/", preserve=preserve)
    except ringcast.RunFailed as error:
        assert "deep: Not a directory" in str(error)  # noqa: PT017  # unless its descriptor is used to the end
    assert os.listdir(private / "outside") == ["s"]
    assert victim.read_bytes() == SECRET
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert stat.S_IMODE((private / "outside").stat().st_mode) == 0o700


@pytest.mark.parametrize("step", ["settle", "finish"])
@pytest.mark.parametrize("verify", VERIFY)
@pytest.mark.parametrize("link", ["os.symlink", "os.link"])
@pytest.mark.parametrize("size", [0, *SIZES])
def test_a_file_exchanged_before_the_last_step_makes_nothing_readable(
    his: Path, private: Path, monkeypatch: pytest.MonkeyPatch, step: str, verify: str, link: str, size: int
) -> None:
    victim = secret(his.parent / "victim", size)
    source = secret(private / "s", size, mode=0o644)
    os.utime(victim, ns=(source.stat().st_mtime_ns, source.stat().st_mtime_ns))
    secret(his / "s", size)
    os.utime(his / "s", ns=(source.stat().st_mtime_ns, source.stat().st_mtime_ns))

    def exchange() -> None:
        second_user.act("os.rename(sys.argv[1], sys.argv[1] + '.away')", his / "s")
        getattr(os, link.removeprefix("os."))(victim, his / "s")

    hook(monkeypatch, Destination, step, exchange)
    try:
        copied(source, f"{his}/", preserve=True, verify=verify)
    except ringcast.RunFailed as error:
        assert "/s: " in str(error)  # noqa: PT017  # it may well be noticed
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert victim.stat().st_size == size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["file", "pipe", "link", "hard link"])
def test_a_part_file_that_he_plants_when_it_is_about_to_be_made_is_removed(
    common: Path, private: Path, monkeypatch: pytest.MonkeyPatch, size: int, kind: str
) -> None:
    source = secret(private / "s", size)
    plant = {
        "file": "open(sys.argv[1], 'w').write('x')",
        "pipe": "os.mkfifo(sys.argv[1], 0o666)",
        "link": "os.symlink(sys.argv[2], sys.argv[1])",
        "hard link": "open(sys.argv[2], 'w').write('x'); os.link(sys.argv[2], sys.argv[1])",
    }[kind]
    step = "write" if size < CHUNK else "reserve"
    hook(monkeypatch, Destination, step, lambda: second_user.act(plant, part_of(common / "s"), common / "his"))
    copied(source, f"{common}/")
    assert is_copy(common / "s", source)
    if (common / "his").exists():
        assert (common / "his").read_text() == "x"


def test_no_file_is_ever_wider_than_its_source(common: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {name: int(name, 8) for name in ("000", "400", "600", "440", "644", "755", "1777")}
    (private / "tree").mkdir()
    for name, mode in modes.items():
        secret(private / "tree" / name, mode=mode)
        secret(private / "tree" / f"{name} large", CHUNK + 1, mode=mode)
    seen: list[tuple[str, int]] = []

    def look() -> None:
        for path in (common / "tree").iterdir():
            seen.append((path.name.removeprefix(".").removesuffix(".ringcast-part").split()[0], path.stat().st_mode))

    for method in "write", "settle", "finish":
        monkeypatch.setattr(Destination, method, looking(getattr(Destination, method), look))
    old = os.umask(0)
    try:
        copied(private / "tree", f"{common}/", preserve=True)
    finally:
        os.umask(old)
    assert {name for name, _ in seen} == set(modes)
    for name, mode in seen:
        assert stat.S_IMODE(mode) & 0o177 & ~modes[name] == 0, (name, oct(mode))


def looking(step: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    def stepped(*arguments: Any) -> Any:
        look()
        result = step(*arguments)
        look()
        return result

    return stepped


# What he lays at the source.


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6755])
@pytest.mark.parametrize("preserve", [False, True])
def test_his_set_user_program_does_not_become_one_of_root(
    common: Path, private: Path, bits: int, preserve: bool
) -> None:
    tree = owned_directory(common / "tree")
    for name, uid, gid in ("his", second_user.UID, second_user.UID), ("ours", 0, 0), ("mixed", 0, second_user.UID):
        secret(tree / name)
        os.chown(tree / name, uid, gid)
        (tree / name).chmod(bits)
    copied(tree, f"{private}/out/", preserve=preserve)
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (private / "out" / "tree").iterdir()}
    kept = {"his": 0o755, "ours": bits, "mixed": bits & ~stat.S_ISGID}
    assert found == (kept if preserve else dict.fromkeys(kept, 0o755))


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "file"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("named", [False, True])
def test_a_file_exchanged_after_it_was_listed_is_not_read(
    common: Path, private: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int, named: bool
) -> None:
    tree = owned_directory(common / "tree")
    second_user.plant(tree / "s", b"x" * size, 0o644)
    victim = secret(common / "victim", size)
    os.utime(victim, ns=((tree / "s").stat().st_mtime_ns,) * 2)

    def exchange() -> None:
        (tree / "s").rename(tree / "away")
        if kind == "link":
            (tree / "s").symlink_to(victim)
        elif kind == "hard link":
            os.link(victim, tree / "s")
        elif kind == "pipe":
            os.mkfifo(tree / "s")
        else:
            secret(tree / "s", size, mode=0o644)

    hook(monkeypatch, Source, "read", exchange)
    with pytest.raises(ringcast.RunFailed, match=r"changed after it was listed|Too many levels|no regular file"):
        copied(tree / "s" if named else tree, f"{private}/out/")
    assert not [path for path in (private / "out").rglob("s") if path.is_file()]


def test_a_directory_exchanged_after_it_was_listed_is_not_read(
    common: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = owned_directory(common / "tree")
    deep = owned_directory(tree / "deep")
    second_user.plant(deep / "s", SECRET, 0o644)
    (private / "outside").mkdir()
    victim = secret(private / "outside" / "s")
    os.utime(victim, ns=((deep / "s").stat().st_mtime_ns,) * 2)
    hook(monkeypatch, Source, "read", lambda: second_user.exchange(deep, private / "outside"))
    with pytest.raises(ringcast.RunFailed, match="deep/s: Not a directory"):
        copied(tree, f"{private}/out/")


def test_a_directory_exchanged_while_it_is_listed_is_not_listed(
    common: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = owned_directory(common / "tree")
    deep = owned_directory(tree / "deep")
    (private / "outside").mkdir()
    secret(private / "outside" / "root's")
    stat_of = os.stat

    def exchanging(path: Any, **options: Any) -> os.stat_result:
        found = stat_of(path, **options)
        if os.path.basename(os.fsencode(path)) == b"deep" and not (tree / "deep.away").exists():
            second_user.exchange(deep, private / "outside")
        return found

    monkeypatch.setattr(os, "stat", exchanging)
    with pytest.raises(ringcast.RunFailed, match="deep: Not a directory"):
        copied(tree, f"{private}/out/")


# What he exchanges as fast as he can.

RACE = 10.0  # seconds of each
EXCHANGED = (
    "a, b = sys.argv[1], sys.argv[2]; os.rename(a, a + '~'); os.symlink(b, a); os.unlink(a); os.rename(a + '~', a)"
)


@pytest.mark.long
@pytest.mark.parametrize("name", ["deep", "deep/s", "deep/.s.ringcast-part"])
@pytest.mark.parametrize("preserve", [False, True])
def test_a_race_at_the_destination_is_never_won(his: Path, private: Path, name: str, preserve: bool) -> None:
    (private / "tree" / "deep").mkdir(parents=True)
    secret(private / "tree" / "deep" / "s", mode=0o644)
    (private / "outside").mkdir(mode=0o700)
    victim = secret(private / "outside" / "s")
    victim.write_bytes(b"private")
    owned_directory(his / "tree")
    owned_directory(his / "tree" / "deep")
    target = private / "outside" if name == "deep" else victim
    until, tries = time.monotonic() + RACE, 0
    with second_user.acting(EXCHANGED, his / "tree" / name, target):
        while time.monotonic() < until:
            tries += 1
            (private / "tree" / "deep" / "s").write_bytes(os.urandom(20))
            with contextlib.suppress(ringcast.RunFailed):
                copied(private / "tree", f"{his}/", preserve=preserve)
            assert os.listdir(private / "outside") == ["s"]
            assert victim.read_bytes() == b"private"
            assert stat.S_IMODE(victim.stat().st_mode) == 0o600
            assert stat.S_IMODE((private / "outside").stat().st_mode) == 0o700
    assert tries > 10


@pytest.mark.long
@pytest.mark.parametrize("name", ["deep", "deep/s"])
def test_a_race_at_the_source_is_never_won(his: Path, private: Path, name: str) -> None:
    owned_directory(his / "tree")
    owned_directory(his / "tree" / "deep")
    second_user.plant(his / "tree" / "deep" / "s", b"x" * len(SECRET), 0o644)
    (private / "outside").mkdir()
    victim = secret(private / "outside" / "s")
    os.utime(victim, ns=((his / "tree" / "deep" / "s").stat().st_mtime_ns,) * 2)
    target = private / "outside" if name == "deep" else victim
    until, tries = time.monotonic() + RACE, 0
    with second_user.acting(EXCHANGED, his / "tree" / name, target):
        while time.monotonic() < until:
            tries += 1
            with contextlib.suppress(ringcast.RunFailed):
                copied(his / "tree", f"{private}/out/")
            found = [path for path in (private / "out").rglob("*") if path.is_file() and not path.is_symlink()]
            assert SECRET not in [path.read_bytes() for path in found]
            shutil.rmtree(private / "out", ignore_errors=True)
    assert tries > 10

"""Files opened by descriptor: whatever another user plants or exchanges, nothing outside is opened, no call waits."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ringcast._util import safe_files
from ringcast._util.safe_files import OPEN, Folders, is_foreign, is_ours, open_folder, open_new, open_regular
from support import second_user


@pytest.fixture
def his(common: Path) -> Path:
    """A directory of the second user, in a private one of ours."""
    (common / "ours").mkdir()
    (common / "ours" / "his").mkdir()
    os.chown(common / "ours" / "his", second_user.UID, second_user.UID)
    return common / "ours" / "his"


def is_at(folder: int, path: Path) -> bool:
    """Return whether a descriptor means the directory at a path, and close it."""
    try:
        return os.path.samestat(os.fstat(folder), path.stat())
    finally:
        os.close(folder)


def test_directories_on_the_way_are_made_and_our_own_links_followed(tmp_path: Path) -> None:
    assert is_at(open_folder(str(tmp_path / "a" / "b"), make=True), tmp_path / "a" / "b")
    (tmp_path / "a" / "up").symlink_to("../a/b")
    (tmp_path / "root").symlink_to(tmp_path / "a")
    assert is_at(open_folder(tmp_path / "root" / "." / "up" / ".." / "up"), tmp_path / "a" / "b")
    assert is_at(open_folder(f"{tmp_path}/root/up/new/", make=True), tmp_path / "a" / "b" / "new")
    assert is_at(open_folder(""), Path())
    assert is_at(open_folder("/"), Path("/"))


def test_the_way_to_a_directory_may_be_closed_to_readers(tmp_path: Path) -> None:
    (tmp_path / "way" / "end").mkdir(parents=True)
    (tmp_path / "way").chmod(0o311)
    assert is_at(open_folder(tmp_path / "way" / "end"), tmp_path / "way" / "end")
    (tmp_path / "way").chmod(0o755)  # or its owner could not remove the directory of the tests


def test_a_way_without_end_a_file_and_nothing_are_errors(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("nothing")
    for name, reason in {"loop": "Too many levels", "file": "Not a directory", "nothing": "No such file"}.items():
        with pytest.raises(OSError, match=reason):
            open_folder(tmp_path / name)
    for name in "loop", "file":
        with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
            open_folder(tmp_path / name / "below", make=True)
    assert is_at(open_folder(tmp_path / "nowhere", make=True), tmp_path / "nothing")


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1770])
def test_what_others_put_where_all_write_is_not_entered(common: Path, mode: int) -> None:
    (common / "outside").mkdir()
    second_user.act("os.mkdir(sys.argv[1]); os.symlink(sys.argv[2], sys.argv[3])", *(common / n for n in "dol"))
    (common / "o").symlink_to("outside")
    common.chmod(mode)
    for name in "d", "l":
        with pytest.raises(PermissionError, match=f"'{name}' belongs to another user"):
            open_folder(common / name)
        with pytest.raises(PermissionError, match=f"'{name}' belongs to another user"):
            open_folder(common / name / "below", make=True)
    assert not os.listdir(common / "d")
    if mode & stat.S_ISVTX:
        assert is_at(open_folder(common / "o"), common / "outside")


def test_a_directory_of_another_user_is_entered_where_its_owner_has_put_it(his: Path) -> None:
    assert is_at(open_folder(his / "below", make=True), his / "below")
    folders = Folders(open_folder(his.parent))
    assert is_at(os.dup(folders.at(b"his/below")), his / "below")
    folders.close()


def test_a_pipe_a_link_a_directory_and_a_device_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    folder = open_folder(tmp_path)
    try:
        for name in "pipe", "link", ".", "/dev/null":
            with pytest.raises(OSError, match=r"no regular file|Too many levels"):
                open_regular(name, folder)
        file, status = open_regular("file", folder)
        assert status == os.fstat(file)
        os.close(file)
        for name in "file", "link", "pipe":
            with pytest.raises(FileExistsError):
                open_new(name, folder)
        file = open_new("new", folder)
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
        os.close(file)
    finally:
        os.close(folder)


def test_only_our_own_files_that_others_cannot_have_named_are_ours(common: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for folder in common, tmp_path:
        (folder / "single").touch()
        (folder / "double").touch()
        os.link(folder / "double", folder / "other name")
        (folder / "link").symlink_to("single")
        (folder / "foreign").touch()
        os.chown(folder / "foreign", second_user.UID, 0)

    def ours(folder: Path, name: str) -> bool:
        return is_ours(folder.stat(), (folder / name).lstat())

    names = "single", "double", "link", "foreign"
    assert [ours(common, name) for name in names] == [True, False, False, False]
    assert [ours(tmp_path, name) for name in names] == [True, True, False, False]
    assert [is_foreign(common.stat(), (common / name).lstat()) for name in names] == [False, False, False, True]
    assert not is_foreign(tmp_path.stat(), (tmp_path / "foreign").lstat())


@pytest.mark.parametrize("keeps", [True, False])
def test_a_directory_that_is_exchanged_is_never_left_for_another(
    his: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr(safe_files, "OPEN", 2)
    outside = his.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in "a/deep", "b", "c":
        (his / name).mkdir(parents=True)
    os.chown(his / "a", second_user.UID, second_user.UID)
    folders = Folders(open_folder(his))
    folders.at(b"a/deep")
    if not keeps:
        folders.at(b"b")
        folders.at(b"c")
    second_user.exchange(his / "a", outside)
    if keeps:  # the descriptor means the directory that was there
        assert is_at(os.dup(folders.at(b"a/deep")), his / "a.away" / "deep")
    else:
        with pytest.raises(NotADirectoryError):
            folders.at(b"a/deep")
        second_user.act("os.unlink(sys.argv[1]); os.makedirs(sys.argv[1] + '/deep')", his / "a")
        with pytest.raises(OSError, match="another directory has taken its place"):
            folders.at(b"a/deep")
    folders.close()


def test_many_directories_need_few_descriptors_at_any_depth(tmp_path: Path) -> None:
    deepest = b"/".join([b"d" * 200] * 50)  # longer than any path that the system takes
    before = len(os.listdir("/proc/self/fd"))
    folders = Folders(open_folder(tmp_path))
    path = b""
    for name in deepest.split(b"/"):
        os.mkdir(name, dir_fd=folders.at(path))
        path = path + b"/" + name if path else name
        folders.at(path)
    for depth in 50, 1, 40, 2, 30, 50:
        above = b"/".join([b"d" * 200] * depth)
        with folders.readable(above) as file:
            assert os.listdir(file) == ([] if depth == 50 else ["d" * 200])
    assert len(os.listdir("/proc/self/fd")) <= before + OPEN + 1
    for depth in range(50, 0, -1):
        os.rmdir(b"d" * 200, dir_fd=folders.at(b"/".join([b"d" * 200] * (depth - 1))))
    folders.close()

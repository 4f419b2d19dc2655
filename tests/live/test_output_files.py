"""Result files: whole or not there, and nothing else that lies at their path is harmed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from ringcast._util.output_files import reason_not, write_whole
from support import needs
from support.patience import patience

UMASK = int(Path("/proc/self/status").read_text().split("Umask:")[1].split()[0], 8)


def put(text: str, path: Path) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    put("one", path)
    path.chmod(0o640)
    put("two", path)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    put("old", path)

    def half(file: IO[bytes]) -> None:
        file.write(b"ha")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path, there: bool) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    if there:
        victim.write_text("kept")
        victim.chmod(0o600)
    link.symlink_to(victim)
    assert reason_not(link) == ""
    put("text", link)
    assert not link.is_symlink()
    assert link.read_text() == "text"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "victim"][: 1 + there]
    if there:
        assert victim.read_text() == "kept"
        assert stat.S_IMODE(link.stat().st_mode) == 0o666 & ~UMASK  # those of the victim mean nothing


def test_a_link_that_is_planted_while_we_write_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")

    def write(file: IO[bytes]) -> None:
        (tmp_path / "result").symlink_to(tmp_path / "victim")
        file.write(b"text")

    write_whole(tmp_path / "result", write)
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / "result").read_text() == "text"


def test_no_name_that_can_be_guessed_is_written(tmp_path: Path) -> None:
    """Nor is any opened that is there: here all names that are tried are the same."""
    names: list[str] = []
    for _ in range(2):
        write_whole(tmp_path / "result", lambda _: names.extend(os.listdir(tmp_path)))
    assert len({name for name in names if name != "result"}) == 2


def test_a_part_that_is_there_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", bytes)
    (tmp_path / "victim").write_text("kept")
    (tmp_path / ".ringcast-0000000000000000").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        put("text", tmp_path / "result")
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / ".ringcast-0000000000000000").is_symlink()  # it is not ours


def test_what_another_user_has_made_lends_no_rights_and_gets_no_text(tmp_path: Path) -> None:
    needs.root()
    for name, kind in ("file", stat.S_IFREG), ("pipe", stat.S_IFIFO):
        os.mknod(tmp_path / name, kind | 0o666)
        os.chmod(tmp_path / name, 0o666)
        os.chown(tmp_path / name, 65534, 65534)
    os.symlink(tmp_path / "pipe", tmp_path / "link")
    os.lchown(tmp_path / "link", 65534, 65534)
    for name in "link", "file", "pipe":
        put("text", tmp_path / name)  # would wait for ever for a reader of the pipe
        status = (tmp_path / name).lstat()
        assert stat.S_ISREG(status.st_mode)
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o666 & ~UMASK)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_has_a_name(tmp_path: Path, name: str, into: str) -> None:
    program = (
        "import os; from ringcast._util.output_files import *; print('first', flush=True);"
        f"write_text({name!r}, 'text, '); os.write(1, b'last')"
    )
    with (tmp_path / "out").open("w") as out:
        stream = subprocess.PIPE if into == "pipe" else out
        done = subprocess.run([sys.executable, "-c", program], stdout=stream, text=True, timeout=patience(60))
    assert done.returncode == 0
    assert (done.stdout if into == "pipe" else (tmp_path / "out").read_text()) == "first\ntext, last"
    assert os.path.islink("/dev/stdout")


def test_the_name_of_a_closed_standard_output_is_not_replaced() -> None:
    needs.root()
    program = "import sys; from ringcast._util.output_files import *; sys.stderr.write(reason_not(Path('/dev/stdout')))"
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert done.stderr == b"/dev/stdout: no permission to write there"


def test_a_device_stays_one() -> None:
    put("text", Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(OSError, match="No space left"):
        put("text", Path("/dev/full"))


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    put("text", path)
    reader.join(patience(10))
    assert read == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    assert reason_not(tmp_path / "new.json") == ""
    assert reason_not(tmp_path) == f"{tmp_path}: no file can be written there"
    assert reason_not(tmp_path / "no" / "file") == f"{tmp_path}/no/file: no file can be written there"
    assert reason_not(Path("/dev/null")) == ""
    if os.geteuid():
        assert reason_not(Path("/etc/passwd")) == "/etc/passwd: no permission to write there"

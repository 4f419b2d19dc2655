"""The directory of a job: what a killed launcher has left is removed by the next one, what is in use is not."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from ringcast_launcher.system import job_dir
from ringcast_launcher.system.job_dir import job_directory
from support import needs

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(job_dir, "bases", lambda: [str(tmp_path)])  # however long its path is
    return tmp_path


def left(folder: Path, name: str, *files: str) -> Path:
    made = folder / name
    made.mkdir(mode=0o700)
    for file in files:
        (made / file).touch(mode=0o600)
    return made


def start() -> None:
    """Be the next launcher, for a moment."""
    with job_directory() as made:
        assert os.stat(made).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("files", [(), ("rank-1", "flight-3"), ("lock",), ("lock", "control", "flight-0")])
def test_what_was_left_is_removed_with_and_without_a_lock(folder: Path, files: tuple[str, ...]) -> None:
    left(folder, "ringcast-job-half", *files)
    start()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("files", [(), ("lock",)])
def test_what_was_left_half_made_is_removed_when_it_is_old(
    folder: Path, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(folder, "ringcast-new-half", *files)
    start()
    assert [path.name for path in folder.iterdir()] == ["ringcast-new-half"]  # somebody may be making it
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2 * job_dir._MAKING)
    start()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["ringcast-job-used", "ringcast-new-used"])
def test_who_holds_the_lock_keeps_the_directory(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used = left(folder, name, "lock", "control")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2 * job_dir._MAKING)
    with (used / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start()
        assert (used / "control").exists()
    start()
    assert not used.exists()


def test_what_is_not_ours_stays(folder: Path) -> None:
    needs.root()
    others = left(folder, "ringcast-job-others", "lock")
    os.chown(others, 65534, 65534)
    elsewhere = left(folder, "elsewhere", "lock")
    (folder / "ringcast-job-link").symlink_to(elsewhere)
    (folder / "ringcast-job-file").touch()
    locked = left(folder, "ringcast-job-lock")
    (locked / "lock").symlink_to(elsewhere / "lock")  # which no launcher makes
    start()
    assert {path.name for path in folder.iterdir()} >= {"ringcast-job-others", "elsewhere", "ringcast-job-link"}
    assert (others / "lock").exists()
    assert (elsewhere / "lock").exists()


def test_launchers_that_start_together_do_not_remove_each_others_directories(folder: Path) -> None:
    failed: list[BaseException] = []

    def starts() -> None:
        try:
            for _ in range(50):
                with job_directory() as made:
                    assert Path(made, "lock").exists()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=starts) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(folder.iterdir()) == []

"""The command line of `ringcast cp`, which is refused before anything starts, and a copy on this host."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ringcast.commands.cp.command import _tell, main
from ringcast.transfer.report import CopyReport, RankReport
from support.patience import patience
from support.trees import described, make_tree


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{file}"], "where to? name hosts and destination, as 'h[1-7]:/data/', or"),
        (["{file}", "h1:/a", "h2:/b"], "h1:/a, h2:/b: the destination is the same path on all hosts"),
        (["h1:{file}", "h2:/b"], "h1:{file}, h2:/b: the destination is the same path on all hosts"),
        (["h1:/data"], "what shall be copied?"),
        (["{file}", "h1:/data", "h1:/data"], "h1 is named twice"),
        (["{file}", "h1:/data", "-H", "h2:/data"], "h1:/data: No such file or directory"),
        (["{file}", ":/data"], "in a Slurm allocation :DEST alone means all of its nodes"),
        (["{file}", "-H", "localhost,{own}:/data"], "localhost and {own} are both this host"),
        (["{file}", "-H", "h1,localhost:{folder}"], "{file}: source and destination are the same file on this host"),
        (["-r", "{folder}", "-H", "localhost:{folder}/.."], "are the same file on this host"),
        (["{file}", "-H", "h1"], "the destination is missing after the hosts"),
        (["{file}", "-H", "h1:"], "the destination is missing after the hosts"),
        (["{file}", "-H", "h1,h1:/data"], "h1 is named twice"),
        (["{file}", "-H", "h1,-oX:/data"], "'-oX' is no host"),
        (["{file}", "-H", "h[3-1]:/data"], "'3-1' is no range of numbers"),
        (["{file}.not", "-H", "h1:/data"], "No such file or directory"),
        (["{folder}", "-H", "h1:/data"], "a directory; -r copies it"),
        (["{file}", "--hostfile", "{hosts}"], "the last argument is the destination, written as :DEST"),
        ([":/data", "--hostfile", "{hosts}"], "what shall be copied?"),
        (["{file}", "-H", "h1:/data", "--json-report", "/no/such/report"], "--json-report /no/such/report: "),
        (["{file}", "--hostfile", "{file}.not", ":/data"], "No such file or directory"),
        (["{file}", "-H", "h1:/data", "--bring", "--rsh-agent", "srun"], "on nodes of Slurm it has to be there"),
        (["s3://me:key@b/a", "h1:/data", "--bring"], "s3://b/a: --bring does not bring fsspec"),
        (["http://h/a", "http://h/b", "-H", "h1:/data"], "http://h/a: a URL is copied alone: one command for each URL"),
        (["http://me:key@h/a", "{file}", "h1:/data"], "http://h/a: a URL is copied alone: one command for each URL"),
        (
            ["http://h/a", "h1:/data", "--verify", "full"],
            "http://h/a: a URL has no digests to compare by: --verify size (the default for URLs) or none",
        ),
        (["http://h/a", "http://h/b"], "http://h/a: a URL is copied alone: one command for each URL, or a pattern"),
        (["http://h/a", "{folder}/to/"], "{folder}/to/: names no host; this one's path is localhost:{folder}/to/"),
        (["s3://b/a"], "where to? name hosts and destination"),
        (["--collect", "h1:/data"], "expected HOSTS:PATH, and the directory of this host"),
        (["--collect", "h1:/data", "{file}"], "{file}: is there, and no directory"),
        (["--collect", ":/data", "{folder}"], "the hosts are missing: name them, as 'h[1-7]:/data'"),
        (["--collect", "h1:/data", "h2:/data", "{folder}"], "h2:/data: all files are of the same hosts"),
        (["--collect", "h1:", "{folder}"], "a path is missing after the hosts"),
        (["--collect", "h1,h1:/data", "{folder}"], "h1 is named twice"),
        (["--collect", "h1:4:/data", "{folder}"], "4 ranks on a host have no meaning here"),
        (["--collect", "/data", "{folder}", "-H", "h1:/data"], "leave out -H"),
        (["--collect", "-r", "localhost:{folder}", "{folder}/out"], "{folder}/out: is in {folder}, which this host"),
        (["--collect", "h1:/data", "{folder}", "--hostfile", "{hosts}"], "with --hostfile, write the files as :PATH"),
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "hosts").write_text("h1\nh2\n")
    names = {"file": tmp_path / "file", "folder": tmp_path, "hosts": tmp_path / "hosts"} | {"own": socket.gethostname()}
    assert main([argument.format(**names) for argument in arguments]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert text.format(**names) in told.err


@pytest.mark.parametrize(
    "wrong",
    [
        *(["--slow", seconds] for seconds in ("drop", "drop=0", "drop=-1", "drop=nan")),
        *(["--connections", number] for number in ("0", "65", "-1", "1.5", "four", "")),
        ["--compress", "gzip"],
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*wrong, "file", "-H", "h1:/data"])
    assert ended.value.code == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert f"argument {wrong[0]}: " in last
    if wrong[0] == "--connections":
        assert last.endswith(f"expected a whole number from 1 to 64, got {wrong[1]}")


@pytest.mark.parametrize(
    "more",
    [["--slow", "wait"], ["--slow", "drop=2.5"], ["--sparse"], ["--compress", "zstd"], ["--connections", "64"]],
    ids=" ".join,
)
def test_options_that_are_right_are_taken(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("content")
    assert main([*more, str(tmp_path / "file"), "-H", "h1:/data/", "--dry-run"]) == 0
    assert "1 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    "where", [["-H", "h[1-2]:/data/"], ["h[1-2]:/data/"], ["h1:/data/", "h2:/data/"]], ids=" ".join
)
def test_a_dry_run_says_what_goes_where(where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("content")
    assert main([str(tmp_path / "file"), *where, "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 files, 7 bytes, to /data/ on\n  h1\n  h2\n"


def test_a_file_whose_name_looks_like_a_destination_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h1:data").write_text("content")
    monkeypatch.chdir(tmp_path)
    assert main(["h1:data", "h[2-3]:/data/", "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 files, 7 bytes, to /data/ on\n  h2\n  h3\n"


@pytest.mark.live
def test_there_may_be_more_names_than_a_command_line_takes(tmp_path: Path) -> None:
    files = [tmp_path / f"{number:03d}{'x' * 200}" for number in range(900)]
    for file in files:
        file.touch()
    command = [sys.executable, "-m", "ringcast", "cp", *map(str, files), "-H", f"localhost:{tmp_path}/out/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "out").iterdir())) == 900


@pytest.mark.live
def test_this_host_can_be_a_destination_and_a_terminal_shows_progress(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    command = [sys.executable, "-m", "ringcast", "cp", "-r", str(tree), "-H", f"localhost:{tmp_path}/out/"]
    ours, theirs = pty.openpty()
    watched = {**os.environ, "TERM": "xterm", "CI": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=watched) as process:
        os.close(theirs)
        out, _ = process.communicate(timeout=patience(120))
    drawn = ""
    with suppress(OSError):  # the end of a terminal that no process has any more
        while True:
            drawn += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert process.returncode == 0
    assert out.startswith("1 of 1 hosts have ")
    assert "100 % of " in drawn
    assert drawn.endswith("\r\x1b[K")
    assert described(tmp_path / "out" / "tree") == described(tree)


SIZE = 3_000_000


@pytest.mark.parametrize(
    ("sent", "ranks", "there"),
    [
        (0, [RankReport(1, "", error="lost: it left")], ""),
        (0, [RankReport(1, "h1", 0, SIZE), RankReport(2, "", error="lost: it left")], "; 3,000,000 were there already"),
        (SIZE, [RankReport(1, "h1", SIZE), RankReport(2, "", error="lost: it left")], ""),
        (0, [RankReport(1, "h1", error="no space")], ""),
        (1_000_000, [RankReport(1, "h1", 1_000_000, 2_000_000)], "; 2,000,000 were there already"),
        (SIZE, [RankReport(1, "h1", 0, SIZE), RankReport(2, "h2", SIZE)], ""),
    ],
)
def test_only_what_a_host_has_found_was_there_already(
    sent: int, ranks: list[RankReport], there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell(CopyReport(1, SIZE, sent, sent, 1.0, tuple(ranks)), ["h1", "h2"])
    told = capsys.readouterr().out.rstrip()
    assert told.endswith(f"{sent:,} sent in 1.0 s{f', {sent / 1e6:.1f} MB/s' if sent else ''}{there}")

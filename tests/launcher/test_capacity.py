"""More ranks than a machine can have are refused before anything is started."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ringcast_launcher.plan import capacity
from ringcast_launcher.plan.job import JobError
from support.patience import patience

REFUSED = r"ringcast-launch: \d+ ranks are (too many|more than this machine can have): .* at most\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "3000000"],
        ["-n", str(10**30)],
        ["-n", "3000000", "-H", "h1.test,h2.test"],
        ["-N", "3000000", "-H", "localhost"],
        ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "localhost:1", "-N", "3000000"],
    ],
)
def test_three_million_ranks(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ringcast_launcher", *arguments, "touch", str(tmp_path / "started")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(REFUSED, done.stderr), done.stderr
    assert not (tmp_path / "started").exists()


def test_what_the_machine_has_is_enough_for_a_few() -> None:
    for ranks in 1, 2, 64:
        capacity.check(ranks)
    least, name = min(capacity.limits())
    with pytest.raises(JobError, match=re.escape(f"{least + 1} ranks are more than this machine can have: {name}")):
        capacity.check(least + 1)


def test_open_files_are_a_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this process may have any number of open files")
    assert (hard // capacity.FILES, "the limit of open files (ulimit -Hn)") in list(capacity.limits())


def test_limits_in_files(tmp_path: Path) -> None:
    (tmp_path / "most").write_text("37\n")
    (tmp_path / "any").write_text("max\n")
    assert list(capacity._file(tmp_path / "most")) == [(37, str(tmp_path / "most"))]
    assert list(capacity._file(tmp_path / "any")) == list(capacity._file(tmp_path / "none")) == []

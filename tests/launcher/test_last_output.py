"""Output that is lost at the end of a job because its host did not tell of it is an error."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience
from support.places import python

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

# An agent that never tells that its workers, and their output, have ended.
AGENT = """
from ringcast_launcher.hosts import agent, local_host
from ringcast_launcher.hosts.messages import Finish
send = local_host.LocalHost.send
local_host.LocalHost.send = lambda self, command: None if isinstance(command, Finish) else send(self, command)
agent.main()
"""
LAUNCHER = "from ringcast_launcher import cli; from ringcast_launcher.run import loop; loop.FINISH = 0.5; cli.main()"


def test_a_host_that_does_not_tell_the_end_of_its_output_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    starter = tmp_path / "starter"
    starter.write_text(f"#!/bin/sh\nexec {python(tmp_path / 'agent.py')}\n")
    starter.chmod(0o755)
    hosts = ["-q", "--rsh-agent", shlex.quote(str(starter)), "-H", "localhost,h1.test"]
    command = [sys.executable, "-c", LAUNCHER, *hosts, "echo", "here"]
    environment = {**os.environ, "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(100), check=False)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (1, ["[0] here", "[1] here"])
    said = "ringcast-launch: host h1.test: the last output of its ranks may be lost: it was not reported within 0.5 s\n"
    assert done.stderr == said

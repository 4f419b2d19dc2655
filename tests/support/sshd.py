"""Emulated hosts with a real sshd each: what runs on one starts programs on the others by plain `ssh h1 …`.

Settings and keys are made anew for each bed and lie over /etc/ssh on its hosts only, where ssh and sshd find them
without options; a ~/.ssh of the machine is covered by an empty directory there. With the first process of a host the
kernel ends its sshd and all sessions, and removes the mounts.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from ringcast.commands.bench.bed import Bed
from support import needs
from support.beds import make_bed, on
from support.patience import patience

SEARCHED = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
UP = 60.0  # seconds that a busy machine may take until every sshd listens

CLIENT = """\
IdentityFile /etc/ssh/user
IdentitiesOnly yes
StrictHostKeyChecking yes
UpdateHostKeys no
"""
SERVER = """\
HostKey /etc/ssh/host
AuthorizedKeysFile /etc/ssh/{accepted}
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
MaxStartups 200
PidFile none
"""


def settings() -> Path:
    """Return the directory of this user's own settings: ssh does not ask $HOME."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"


def missing() -> list[str]:
    """Return the programs of OpenSSH's server and client that are not installed."""
    return [name for name in ("sshd", "ssh", "ssh-keygen") if not _program(name)]


@contextlib.contextmanager
def ssh_bed(
    text: str,
    *,
    refused: Collection[int] = (),
    silent: Collection[int] = (),
    profile: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Bed]:
    """Make a bed such as "4" or "4x100mbit" whose hosts reach each other by ssh.

    Those in `refused` accept no key, those in `silent` have no sshd. Sessions have the PYTHONPATH of this process and
    the variables of `profile`, as if the user's profile had set them. To an error in the block the log of each sshd is
    added.
    """
    needs.programs(missing(), "openssh-server openssh-client")
    daemons: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rc-sshd-")))
        stack.callback(_reap, daemons)
        bed = stack.enter_context(make_bed(text))
        _write(folder, profile)
        for i, host in enumerate(bed.hosts):
            on(bed, i, "sh", "-ec", _mounts(folder))
            if i not in silent:
                with (folder / f"{host.name}.log").open("wb") as log:
                    how = "refuses" if i in refused else "accepts"
                    daemons.append(bed.start(i, [_program("sshd"), "-D", "-e", "-f", f"/etc/ssh/{how}"], stderr=log))
        try:
            _wait(folder, daemons)
            yield bed
        except BaseException as error:
            error.add_note(_logs(folder))
            raise


def _program(name: str) -> str:
    return shutil.which(name, path=SEARCHED) or ""


def _write(folder: Path, profile: Mapping[str, str]) -> None:
    """Write what is /etc/ssh on the hosts."""
    for key in "host", "user":
        subprocess.run([_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **profile}
    given = " ".join(shlex.quote(f"{name}={value}") for name, value in variables.items())
    for name, accepted in ("accepts", "user.pub"), ("refuses", "none"):
        (folder / name).write_text(f"{SERVER.format(accepted=accepted)}SetEnv {given}\n")
    (folder / "ssh_config").write_text(CLIENT)
    (folder / "ssh_known_hosts").write_text(f"* {(folder / 'host.pub').read_text()}")


def _mounts(folder: Path) -> str:
    """Return the script that puts a host's settings in their place, and the directory that sshd wants empty."""
    covered = settings()
    cover = f"mount -t tmpfs -o mode=700 tmpfs {shlex.quote(str(covered))}" if covered.is_dir() else ""
    return f"""\
mount --bind {shlex.quote(str(folder))} /etc/ssh
mount -t tmpfs tmpfs /run
mkdir /run/sshd
{cover}
"""


def _wait(folder: Path, daemons: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + patience(UP)
    while (listening := _logs(folder).count("Server listening on 0.0.0.0 ")) < len(daemons):
        assert all(daemon.poll() is None for daemon in daemons), "an sshd has ended"
        assert time.monotonic() < deadline, f"{listening} of {len(daemons)} sshd listen after {UP:g} s"
        time.sleep(0.01)


def _logs(folder: Path) -> str:
    return "\n".join(f"sshd on {log.stem}:\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log")))


def _reap(daemons: list[subprocess.Popen[bytes]]) -> None:
    for daemon in daemons:
        daemon.wait(patience(UP))

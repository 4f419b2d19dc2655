"""A Python for aarch64 that qemu-user runs on this machine: Debian's, with the packages of the tests.

It is downloaded once, into `build/aarch64` of the checkout, by apt and pip; nothing of this system changes. qemu looks
there first for each file that a program opens (`-L`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path

from support.places import ROOT, SUPPORT

COMPILER = "aarch64-linux-gnu-gcc"
PROGRAMS = {
    "qemu-aarch64": "qemu-user",
    COMPILER: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
SITE = SUPPORT / "aarch64"  # its sitecustomize, for PYTHONPATH
PLACE = ROOT / "build" / "aarch64"
SOURCES = Path(__file__), SITE / "process_vm_readv.c", ROOT / "pyproject.toml"
MADE = "made"  # a file with the checksum of these
DEBIAN = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main"
DEBS = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev", "libc6", "libgcc-s1"),
    *("libstdc++6", "libssl3", "libffi8", "zlib1g", "libexpat1", "libbz2-1.0", "liblzma5", "libuuid1", "libcrypt1"),
)
# Beside the system's: apt's sources and lists are those of this directory, and no program of the system hears of them.
APT = """
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "PLACE/state";
Dir::State::status "PLACE/status";
Dir::Cache "PLACE/cache";
Dir::Etc::sourcelist "PLACE/sources.list";
Dir::Etc::sourceparts "/dev/null";
"""
PACKAGES = ("pytest", "hypothesis", "pytest-timeout")
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)))
LIBRARY = Path("lib", "aarch64-linux-gnu", "process_vm_readv.so")
SCRIPT = f"""#!/bin/sh
root=$(dirname "$0")
exec qemu-aarch64 -L "$root" -E LD_PRELOAD={LIBRARY.name} "$root/usr/bin/python3.11" "$@"
"""


class CannotDownload(Exception):
    """The reason."""


def python() -> Path:
    """Return the program, which runs as other Pythons do.

    Raises:
        CannotDownload: there is no network, for one.
    """
    checksum, made = str(zlib.crc32(b"".join(source.read_bytes() for source in SOURCES))), PLACE / MADE
    if not (made.exists() and made.read_text() == checksum):
        unfinished = PLACE.with_name(f"{PLACE.name}.{os.getpid()}")
        try:
            _make(unfinished)
            (unfinished / MADE).write_text(checksum)
            shutil.rmtree(PLACE, ignore_errors=True)
            unfinished.rename(PLACE)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return PLACE / "python"


def compiling() -> dict[str, str]:
    """Return the variables by which `hatch_build.py` compiles for it, and fails where the compiler warns."""
    include = PLACE / "usr" / "include"
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{include / 'python3.11'}", f"-I{include}"]
    return {"CC": COMPILER, "CFLAGS": shlex.join(flags)}


def _make(place: Path) -> None:
    place.mkdir(parents=True)
    _unpack(place)
    _install(place / "usr" / "lib" / "python3" / "dist-packages")
    _run(COMPILER, "-O2", "-fPIC", "-shared", "-Wall", "-Werror", SITE / "process_vm_readv.c", "-o", place / LIBRARY)
    (place / "python").write_text(SCRIPT)
    (place / "python").chmod(0o755)


def _unpack(place: Path) -> None:
    apt = place / "apt"
    debs = apt / "debs"
    for folder in debs, apt / "state" / "lists" / "partial", apt / "cache" / "archives" / "partial":
        folder.mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"{DEBIAN}\n")
    (apt / "conf").write_text(APT.replace("PLACE", str(apt)))
    for words in ["update", "--error-on=any"], ["download", *DEBS]:
        _run("apt-get", "-q", "-c", apt / "conf", *words, cwd=debs)
    for deb in debs.glob("*.deb"):
        _run("dpkg-deb", "-x", deb, place)
    shutil.rmtree(apt)


def _install(target: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    python = ["--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", target]
    _run(*pip, *platforms, *python, *project["dependencies"], *PACKAGES)


def _run(*argv: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if not line.startswith(("W", "  "))]
        raise CannotDownload(f"{argv[0]}: {said[-1] if said else f'code {done.returncode}'}")

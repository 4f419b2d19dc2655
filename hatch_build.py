"""hatchling's hook for the wheel: compiles `ringcast/protocol/_lane.c`, the one part of ringcast that is not Python.

The wheel is then one for all CPythons from 3.11 on this platform; an editable installation has the module beside its
source instead, where git ignores it, and `python hatch_build.py` makes it there again. Where it cannot be compiled,
one line says why, and the wheel has Python alone, which runs everywhere. RINGCAST_PURE=1 asks for such a wheel; CC,
CFLAGS and LDFLAGS are read as by make.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLATFORMS = ("linux-x86_64", "linux-aarch64")  # where words of shared memory are as the source takes them
SOURCE = Path("ringcast/protocol/_lane.c")
MODULE = SOURCE.with_suffix(".abi3.so")
FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
COMPILERS = ("cc", "gcc", "clang")


class CannotCompile(Exception):
    """The reason, and what would help."""


class CompilingHook(BuildHookInterface[Any]):
    """Puts the compiled module into the wheel, or beside its source, where it can be made."""

    _place: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say that the wheel is one for this platform."""
        beside, source = Path(self.root, MODULE), Path(self.root, SOURCE)
        if os.environ.get("RINGCAST_PURE") == "1":
            if version == "editable":
                beside.unlink(missing_ok=True)
            return
        try:
            if version == "editable":
                compile_module(source, beside)
            else:
                self._place = TemporaryDirectory(prefix="ringcast-compiled-")
                made = Path(self._place.name, MODULE.name)
                compile_module(source, made)
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["pure_python"], build_data["tag"] = False, f"cp311-abi3-{platform}"
                build_data["force_include"][str(made)] = str(MODULE)
        except CannotCompile as reason:
            self.app.display_warning(notice(reason))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what the wheel has a copy of."""
        if self._place is not None:
            self._place.cleanup()


def notice(reason: CannotCompile) -> str:
    """Return the line for a person whose ringcast has no compiled part."""
    return f"ringcast is installed without its compiled part, so small messages within a host take longer: {reason}"


def compile_module(source: Path, made: Path) -> None:
    """Compile `source` into `made`, which appears at once, complete.

    Raises:
        CannotCompile: there is no compiler, no Python.h, or it fails; or this is another platform.
    """
    include, compiler = _headers(), _compiler()
    unfinished = made.with_name(f".{made.name}.{os.getpid()}")
    named = ["-I", include, f"-DSOURCE={zlib.crc32(source.read_bytes())}", str(source), "-o", str(unfinished)]
    flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), *shlex.split(os.environ.get("LDFLAGS", ""))]
    try:
        done = subprocess.run([*compiler, *flags, *named], capture_output=True, text=True, errors="replace")
        if done.returncode or not unfinished.exists():
            said = f": {done.stderr.strip().splitlines()[0]}" if done.stderr.strip() else ""
            raise CannotCompile(f"{shlex.join(compiler)} failed, with code {done.returncode}{said}")
        os.replace(unfinished, made)
    except OSError as error:
        raise CannotCompile(f"{error.filename}: {error.strerror}; install gcc") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _headers() -> str:
    """Return the directory of Python.h."""
    platform = sysconfig.get_platform()
    if platform not in PLATFORMS or sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotCompile(f"it is for CPython with a GIL on {' and '.join(PLATFORMS)}, not for {platform}")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        raise CannotCompile(f"{include}/Python.h is missing; install python3-dev (and gcc), then ringcast again")
    return include


def _compiler() -> list[str]:
    """Return the command of a C compiler: CC, or the first that is found."""
    if named := shlex.split(os.environ.get("CC", "")):
        return named
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise CannotCompile("there is no C compiler; install gcc and python3-dev, then ringcast again")


if __name__ == "__main__":
    try:
        compile_module(SOURCE, MODULE)
    except CannotCompile as reason:
        print(notice(reason), file=sys.stderr)

"""hatchling's hook for the wheel: with RINGCAST_COMPILE=1, mypyc compiles the modules that every message runs through.

The sources stay in the wheel, for tracebacks; Python prefers a compiled module to the source beside it. Modules that
run once a call or less are not compiled, nor are these:

* `engine/endpoint.py`: `engine/shared.py` changes the class of an endpoint, and `requests/persistent.py` fills one from
  the variables of another. mypyc compiles such a class only as an ordinary one, which was no faster than the source.
  All waits go through it, so they notice signals as before: Python runs handlers only where bytecode runs.
* `engine/signal_gate.py`, `engine/shared_gate.py`: the places in their sources where a handler may run matter.
* `engine/drive.py`, `engine/open_call.py`, `wire/call.py`, `wire/joined.py`, `engine/recorder.py`: no gain was
  measured.
* `schedules/`, and what else defines classes with `ringcast._util.dataclass`: mypyc takes it for the standard
  library's, and makes extension classes, in which our methods find no attributes.
* `transports/`: the time of ZeroMQ and of sockets is mostly that of pyzmq and the system. That of shared memory is
  Python's in part; whether it gains was not measured, and tests replace methods of its classes.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (
    *("protocol/aborting", "protocol/ballots", "protocol/communicators", "protocol/counters", "protocol/eager_credits"),
    *("protocol/error_factory", "protocol/machine", "protocol/matching", "protocol/notices", "protocol/operations"),
    *("protocol/outbox", "protocol/receiving", "protocol/request_budget", "protocol/sending"),
    *("engine/execute", "engine/slots", "engine/task"),
    "wire/header",
)


class CompilingHook(BuildHookInterface[Any]):
    """Compiles COMPILED and puts them into the wheel, if the environment asks for it."""

    def dependencies(self) -> list[str]:
        """Return the compiler, and all that the sources import, whose types it reads."""
        return ["mypy[mypyc]>=2", *self.metadata.core.dependencies] if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say that the wheel is one for this Python and this system.

        Raises:
            ValueError: the installation is to be editable.
        """
        if not _wanted():
            return
        if version == "editable":
            raise ValueError("an editable installation runs the sources, which compiled modules hide: leave out -e")
        self._place = TemporaryDirectory(prefix="ringcast-compiled-")
        _compile([f"ringcast/{module}.py" for module in COMPILED], Path(self._place.name))
        build_data["pure_python"], build_data["infer_tag"] = False, True
        made = Path(self._place.name, "lib")
        build_data["force_include"] |= {str(file): str(file.relative_to(made)) for file in made.rglob("*.so")}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what the wheel has a copy of."""
        if _wanted():
            self._place.cleanup()


def _wanted() -> bool:
    return os.environ.get("RINGCAST_COMPILE") == "1"


def _compile(sources: list[str], place: Path) -> None:
    """Compile sources, named from here, together, as they know each other's types; the result is in `place`/lib."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    extensions = mypycify(sources, target_dir=str(place / "c"), group_name="ringcast", debug_level="0")
    command = Distribution({"name": "ringcast", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(place / "lib"), str(place / "o")
    command.ensure_finalized()
    command.run()

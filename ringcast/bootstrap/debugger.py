"""Python's debugger in a rank, at the terminal of the launcher: `breakpoint()`, and `ringcast-launch --debug RANK`.

The launcher sets PYTHONBREAKPOINT to `stop` for the ranks of its own host, and starts the rank to be debugged as
`-P -m ringcast.bootstrap.debugger`. Ranks that stop at the same time have the terminal in turn: each until its next
command that lets the program run.
"""

from __future__ import annotations

import bdb
import builtins
import fcntl
import importlib.util
import io
import os
import pdb  # noqa: T100 - this module is a debugger
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType, TracebackType
from typing import Any

from ringcast.bootstrap.world import whoami
from ringcast.config.worker import WorkerConfig, safe_path
from ringcast.errors import UsageError
from ringcast.monitoring import progress
from ringcast.wire.error_text import text_of

_LOCK = "debugger"  # a file in the job's directory


class RankDebugger(pdb.Pdb):
    """Pdb, whose prompt names the rank, and which has the terminal as standard input and output while it waits."""

    def __init__(self, rank: int, config: WorkerConfig) -> None:
        super().__init__(nosigint=True)  # Ctrl-C is for the launcher, which ends the job
        self.prompt = f"(Pdb rank {rank}) "
        self._config = config
        self.left = False  # by the user at the prompt

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()

    def interaction(self, *arguments: Any) -> None:
        with _terminal(self._config):
            super().interaction(*arguments)

    def cmdloop(self, intro: Any = None) -> None:
        try:
            super().cmdloop(intro)
        except KeyboardInterrupt:  # of the launcher, which ends the job
            self.set_quit()


def stop() -> None:
    """Stop in the debugger where `breakpoint()` was called, at the terminal of the launcher.

    Raises:
        UsageError: this rank has no terminal.
    """
    caller = sys._getframe(1)
    RankDebugger(*_who("breakpoint()")).set_trace(caller)


def main() -> None:
    """Run the program of the command line as Python would, but stop at its first line, and where it raises."""
    debugger = RankDebugger(*_who("--debug"))
    del sys.argv[0]
    code, module = _script(sys.argv[0]) if sys.argv[0] != "-m" else _module(sys.argv[1])
    sys.modules["__main__"] = module
    try:
        debugger.run(code, module.__dict__)
    except Exception as error:  # of the program: SystemExit and KeyboardInterrupt end it as usual
        own = error.with_traceback(_of_program(error.__traceback__))
        print(text_of(own, whole=True), end="", flush=True)
        debugger.reset()
        debugger.interaction(None, own.__traceback__)
        raise own from None
    if debugger.left:
        sys.exit(1)


def _who(caller: str) -> tuple[int, WorkerConfig]:
    rank, config = whoami()
    if not config.terminal:
        needed = "the debugger needs a launcher whose standard error is a terminal, on the host of the rank"
        raise UsageError(f"{caller}: rank {rank} has no terminal: {needed}")
    return rank, config


def _script(path: str) -> tuple[CodeType, ModuleType]:
    """Return the code of a script, and the module in which it is to run."""
    _put_first(os.path.dirname(os.path.realpath(path)))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    return code, _main(path)


def _module(name: str) -> tuple[CodeType, ModuleType]:
    """Return the code of a module or of a package's `__main__`, and the module in which it is to run."""
    del sys.argv[0]
    _put_first(os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = None if spec is None or spec.loader is None else spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    if spec is None or code is None:
        sys.exit(f"ringcast: there is no module {name} of Python source")
    sys.argv[0] = spec.origin or name
    module = _main(sys.argv[0])
    module.__spec__, module.__package__ = spec, spec.parent
    return code, module


def _put_first(folder: str) -> None:
    """Let the program import modules from the directory that Python puts first in its path, unless the user forbids."""
    if not safe_path():
        sys.path.insert(0, folder)


def _main(path: str) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = builtins
    return module


def _of_program(found: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below the frames of this file and of the debugger."""
    ours = (__file__, bdb.__file__)
    while found is not None and found.tb_next is not None and found.tb_frame.f_code.co_filename in ours:
        found = found.tb_next
    return found


@contextmanager
def _terminal(config: WorkerConfig) -> Iterator[None]:
    """Have the terminal as standard input, and from now on as standard output, so that all output is in order."""
    progress.draws(config.directory)  # no status line beside the prompt
    # O_NOCTTY: the terminal belongs to the session of the launcher.
    terminal = os.open(config.terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    lock = os.open(os.path.join(config.directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    before = os.dup(0)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sys.stdout.flush()
        os.dup2(terminal, 1)
        os.dup2(terminal, 0)
        if isinstance(sys.stdout, io.TextIOWrapper):  # not unbuffered: other ranks' output would come into a line
            sys.stdout.reconfigure(line_buffering=True, write_through=False)
        yield
    finally:
        os.dup2(before, 0)
        for file in before, lock, terminal:
            os.close(file)


if __name__ == "__main__":
    main()

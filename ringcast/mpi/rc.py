"""mpi4py's options, which a program sets before it imports MPI."""

from __future__ import annotations

import sys
from typing import Any

from ringcast._util.safe_text import safe_text


class Rc:
    """Options of mpi4py.

    `initialize` and `errors` have the meaning of mpi4py. The others are about MPI's library, and have no effect here.
    """

    initialize: bool = True
    threads: bool = True
    thread_level: str = "multiple"
    finalize: bool | None = None
    fast_reduce: bool = True
    recv_mprobe: bool = True
    irecv_bufsz: int = 32768
    errors: str = "exception"

    def __init__(self, **options: Any) -> None:
        self(**options)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(self, name):
            raise TypeError(f"mpi4py.rc has no option {safe_text(name)}")
        super().__setattr__(name, value)

    def __call__(self, **options: Any) -> None:
        """Set options, all or none of them."""
        for name in options:
            if not hasattr(self, name):
                raise TypeError(f"mpi4py.rc has no option {safe_text(name)}")
        for name, value in options.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return "<mpi4py.rc>"


rc = Rc()


def chosen() -> Any:
    """Return the options of the program: the options of its mpi4py, if it has imported one."""
    return getattr(sys.modules.get("mpi4py"), "rc", rc)

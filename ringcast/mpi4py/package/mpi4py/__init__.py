"""mpi4py on ringcast: the installed mpi4py with another MPI; or the parts of it that most programs need.

Where mpi4py is installed, programs get all of it but `mpi4py.MPI`, and no library of MPI is loaded. Where it is
not, this package has `rc`, `MPI`, `run`, `futures`, `util.pkl5` and a `bench` that has `helloworld`.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import NoReturn

from ringcast.mpi.rc import rc
from ringcast.mpi4py import absent

_HERE = os.path.dirname(os.path.abspath(__file__))
_ANSWERED = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "answered")  # has MPI alone

__version__ = "4.1.2"  # of mpi4py, which this package stands for
__all__ = ["MPI"]


def get_include() -> NoReturn:
    """Refuse: there is no C API."""
    raise NotImplementedError(f"mpi4py.get_include: {_NO_LIBRARY}")


def get_config() -> NoReturn:
    """Refuse: there is no MPI to be configured."""
    raise NotImplementedError(f"mpi4py.get_config: {_NO_LIBRARY}")


_NO_LIBRARY = "this mpi4py runs on ringcast, without a library of MPI that code could be compiled for"


def _become_installed() -> bool:
    """Put the installed mpi4py in this module's place, if there is one, with our MPI before its own."""
    others = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(_HERE)]
    spec = PathFinder.find_spec(__name__, others)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return False
    module = module_from_spec(spec)
    module.__path__.insert(0, _ANSWERED)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)
    return True


if not _become_installed():
    __path__ = [*__path__, _ANSWERED]
    sys.modules[f"{__name__}.rc"] = rc  # type: ignore[assignment]
    absent.tell()

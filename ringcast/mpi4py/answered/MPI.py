"""`mpi4py.MPI` is `ringcast.MPI`."""

import importlib
import sys

from ringcast.mpi4py.docstrings import begin_with_calls

begin_with_calls(importlib.import_module("ringcast.MPI"))
sys.modules[__name__] = sys.modules["ringcast.MPI"]

"""The public face of a Communicator, which is put together from several classes."""

from __future__ import annotations

import inspect
from typing import Any

from ringcast.communicator import Communicator
from ringcast.communicator.nonblocking import NonblockingCalls

FORMS = {name for name in vars(NonblockingCalls) if not name.startswith("_")}  # of calls that have a blocking form
PUBLIC: dict[str, Any] = {
    name: value
    for name, value in inspect.getmembers_static(Communicator)
    if not name.startswith("_") and name not in FORMS
}
METHODS = {name for name, value in PUBLIC.items() if callable(value)}

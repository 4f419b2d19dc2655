"""ringcast's errors as the ones that programs of torch catch."""

from __future__ import annotations

import torch.distributed as dist

from ringcast.errors import RingcastError

_Failed: type[RuntimeError] = getattr(dist, "DistBackendError", RuntimeError)


def as_torch(error: RingcastError) -> RuntimeError:
    """Return the error that torch's programs catch, with the same text; its `__cause__` is ringcast's error."""
    translated = _Failed(str(error))
    translated.__cause__ = error
    return translated

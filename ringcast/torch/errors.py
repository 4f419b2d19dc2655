"""ringcast's errors as the ones that programs of torch catch."""

from __future__ import annotations

import torch.distributed as dist

from ringcast.errors import ArgumentError, CollectiveTimeout, RingcastError

_Failed: type[RuntimeError] = getattr(dist, "DistBackendError", RuntimeError)


def as_torch(error: RingcastError) -> Exception:
    """Return the error that torch's programs catch, with the same text; its `__cause__` is ringcast's error."""
    limit = "; the timeout is over" if isinstance(error, CollectiveTimeout) and not error.cycle else ""
    kind = ValueError if isinstance(error, ArgumentError) else _Failed
    translated = kind(f"{error}{limit}")  # programs of torch look for that word
    translated.__cause__ = error
    return translated

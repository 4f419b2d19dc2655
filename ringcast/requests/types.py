"""Types of the arguments and results of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ringcast.ops import Op

Value = TypeVar("Value")  # an array, a scalar, or any object, whose type the result has as well
Scalar = TypeVar("Scalar", bound=np.generic)  # the type of an array's items

Operator: TypeAlias = Op | Callable[[Any, Any], Any]

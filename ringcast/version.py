"""The version of this package: a constant, as to look it up in the installation takes longer than a rank's Hello."""

from __future__ import annotations

__version__ = "0.1.0"

"""Say how to install a package that only some commands need, in the same words wherever ringcast itself came from.

The text names the package, not an extra of ringcast's: `pip install 'ringcast[bench]'` would ask the index for
ringcast, also where a checkout or a wheel is installed.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires


def how_to_install(package: str) -> str:
    """Return the command that installs a package of one of our extras, in a version that we work with.

    >>> how_to_install("matplotlib")
    "pip install 'matplotlib>=3.8'"
    """
    try:
        listed = requires("ringcast") or []
    except PackageNotFoundError:  # ringcast runs from its sources, without installation
        listed = []
    wanted = (requirement.partition(";")[0].strip() for requirement in listed)
    named = (requirement for requirement in wanted if re.split(r"[^\w.-]", requirement, maxsplit=1)[0] == package)
    return f"pip install '{next(named, package)}'"

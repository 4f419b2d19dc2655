"""How to install a package that only some commands need: the same words wherever ringcast itself came from.

The package is named, not an extra of ringcast's: `pip install 'ringcast[bench]'` would ask the index for ringcast,
where a checkout or a wheel is what is installed.
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
    except PackageNotFoundError:  # the sources are run where they lie
        listed = []
    wanted = (requirement.partition(";")[0].strip() for requirement in listed)
    named = (requirement for requirement in wanted if re.split(r"[^\w.-]", requirement, maxsplit=1)[0] == package)
    return f"pip install '{next(named, package)}'"

"""On which hosts a job runs: from the options, to the ranks of each host."""

from __future__ import annotations

import fnmatch
import socket
from collections.abc import Mapping, Sequence

from ringcast.hostlist import Host, HostError, How, is_own, place
from ringcast_launcher.job import JobError, Node

# What programs on other hosts need of this one's environment to be the same programs. The rest is their login's.
PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LANG", "LC_*", "TZ"),
    *("*_NUM_THREADS", "OMP_*", "MKL_*", "OPENBLAS_*"),
)


def nodes(
    hosts: Sequence[Host], size: int | None, per_node: int | None, how: How, *, called: str | None = None
) -> tuple[Node, ...]:
    """Return the hosts that have ranks; all are here if no host is named. `called` is what the list calls this machine,
    "" if it is not there; None: by one of the names and addresses that it has.

    Raises:
        JobError: the numbers do not fit.
    """
    own = called or socket.gethostname()
    try:
        places = place(hosts or [Host(own, size or per_node or 0)], size, how, per_node)
    except HostError as error:
        raise JobError(str(error)) from error
    ranks: dict[tuple[str, bool], list[int]] = {}
    for one in places:
        here = not hosts or (is_own(one.host, own) if called is None else one.host == called)
        ranks.setdefault((own if here else one.host, here), []).append(one.rank)
    return tuple(Node(host, tuple(of_host), here) for (host, here), of_host in ranks.items())


def passed_on(environment: Mapping[str, str], exports: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that workers on other hosts get: what they need to be the same programs, and `exports`.

    >>> passed_on({"PATH": "/bin", "HOME": "/root", "OMP_NUM_THREADS": "1"}, {"A": "2"})
    {'PATH': '/bin', 'OMP_NUM_THREADS': '1', 'A': '2'}
    """
    known = {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PASSED_ON)
    }
    return known | dict(exports)

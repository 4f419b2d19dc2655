"""Place the ranks of a job on hosts by the options."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from ringcast.net.hostlist import Host, HostError, How, is_own, merged, place
from ringcast_launcher.plan.job import JobError, Node

# Variables without which a program on another host would not be the same program. The login there sets the others.
_NAMES = {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "TZ"}
_BEGINNINGS, _END = ("PYTHON", "CONDA_", "LC_", "OMP_", "MKL_", "OPENBLAS_"), "_NUM_THREADS"


def nodes(
    hosts: Sequence[Host], size: int | None, per_node: int | None, how: How, *, called: str | None = None
) -> tuple[Node, ...]:
    """Return the hosts that have ranks; all ranks are on this machine if no host is named.

    `called` is this machine's name in the list, "" if the list does not have it; None: any of its names and addresses.

    Raises:
        JobError: the numbers of ranks, slots and hosts do not fit.
    """
    own = called or socket.gethostname()
    known = _by_one_name(hosts, called)
    try:
        places = place(known or [Host(own, size or per_node or 0)], size, how, per_node)
    except HostError as error:
        raise JobError(str(error)) from error
    ranks: dict[str, list[int]] = {}
    for one in places:
        ranks.setdefault(one.host, []).append(one.rank)
    return tuple(Node(host, tuple(of_host), host == own and called != "") for host, of_host in ranks.items())


def _by_one_name(hosts: Sequence[Host], called: str | None) -> tuple[Host, ...]:
    """Return the hosts with this machine named once, with the slots of all its names; `called` as for `nodes`."""
    if called is not None:
        return tuple(hosts)
    own = socket.gethostname()
    return merged(Host(own, host.slots) if is_own(host.name, own) else host for host in hosts)


def passed_on(environment: Mapping[str, str], exports: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for workers on other hosts: the ones above that are present, and `exports`.

    >>> passed_on({"PATH": "/bin", "HOME": "/root", "OMP_NUM_THREADS": "1"}, {"A": "2"})
    {'PATH': '/bin', 'OMP_NUM_THREADS': '1', 'A': '2'}
    """
    known = {
        name: value
        for name, value in environment.items()
        if name in _NAMES or name.startswith(_BEGINNINGS) or name.endswith(_END)
    }
    return known | dict(exports)

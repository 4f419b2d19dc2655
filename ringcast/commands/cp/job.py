"""Read the job of `ringcast cp` from its command line: the files, the hosts and the destination."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import fields, replace

from ringcast._util.dataclass import dataclass
from ringcast.commands.cp.order import Order, below_home
from ringcast.config.worker import allocated_hosts, start_timeout
from ringcast.net.hostlist import Host, is_own, listed
from ringcast.transfer.listing import Listing, scan
from ringcast.transfer.manifest import DIRECTORY, shown
from ringcast.transfer.options import FULL, SIZE, ZSTD, Options
from ringcast.transfer.places import placed
from ringcast.transfer.sources.opening import name_for_people, needs_fsspec


@dataclass(frozen=True, slots=True)
class Job:
    """A copy: the order for its ranks, and the hosts; if this one is among them, it is the first."""

    order: Order
    hosts: tuple[str, ...]
    rsh_agent: str
    collects: bool = False  # the hosts have the files
    brings: bool = False  # the hosts get ringcast for the time of the copy


def job_of(options: argparse.Namespace) -> Job:
    """Return the job that the options describe.

    Raises:
        ConfigError, HostError, ValueError: the options contradict each other, or name no job.
    """
    if options.collect:
        job = _collecting(options)
    else:
        _take_destinations(options)
        job = _downloading(options) if options.paths and "://" in options.paths[0] else _copying(options)
    if options.bring:
        _check_bring(job)
    return replace(job, brings=options.bring)


def _take_destinations(options: argparse.Namespace) -> None:
    """Make an option of the last arguments that are destinations, as h1:/data/ h2:/data/.

    Raises:
        ValueError: they are not one path on all hosts.
    """
    if options.hosts is not None or options.hostfile is not None:
        return
    sources, hosts, targets = [*options.paths], list[str](), list[str]()
    while sources and _is_destination(sources[-1]):
        named, target = _split(sources.pop())
        hosts.insert(0, named)
        targets.insert(0, target)
    if len({*targets}) > 1:
        raise ValueError(
            f"{', '.join(options.paths[len(sources) :])}: the destination is the same path on all hosts; "
            "files of other hosts come here by --collect"
        )
    if hosts:
        options.paths, options.hosts = sources, f"{','.join(hosts)}:{targets[0]}"


def _is_destination(text: str) -> bool:
    """Return whether an argument names hosts and a path there, and no file of this host."""
    hosts, path = _split(text)
    return bool(hosts and path) and "://" not in text and not os.path.lexists(text)


def _check_bring(job: Job) -> None:
    """Raise ConfigError or ValueError if ringcast cannot be brought for this job."""
    start_timeout()
    if job.rsh_agent == "srun":
        raise ValueError("--bring brings ringcast by ssh; on nodes of Slurm it has to be there")
    if job.order.connections and needs_fsspec(source := os.fsdecode(job.order.sources[0])):
        name = name_for_people(source)
        raise ValueError(f"{name}: --bring does not bring fsspec, which reads this; http and https need none")


def _copying(options: argparse.Namespace) -> Job:
    """Return the job that the options describe.

    Raises:
        HostError, ValueError: the options contradict each other, or name no job.
    """
    paths: list[str] = options.paths
    rsh_agent = options.rsh_agent or ""
    if (
        options.hosts is None
        and options.hostfile is None
        and paths[-1].startswith(":")
        and (nodes := allocated_hosts())
    ):
        hosts, target, paths = tuple(map(Host, nodes)), paths[-1][1:], paths[:-1]
        rsh_agent = rsh_agent or "srun"
    elif options.hostfile is not None:
        if not paths[-1].startswith(":"):
            raise ValueError("with --hostfile, the last argument is the destination, written as :DEST")
        hosts, target, paths = listed(None, options.hostfile), paths[-1][1:], paths[:-1]
    elif options.hosts is not None:
        named, target = _split(options.hosts)
        hosts = listed([named], None)
    else:
        raise ValueError(
            "where to? name hosts and destination, as 'h[1-7]:/data/', or --hostfile FILE and :DEST; "
            "in a Slurm allocation :DEST alone means all of its nodes"
        )
    if not paths:
        raise ValueError("what shall be copied? name a file or a directory")
    if not target:
        raise ValueError("the destination is missing after the hosts; expected is HOSTS:DEST")
    _refuse_several(hosts, target)
    sources = [os.path.join(os.getcwd(), path) for path in paths]  # the ranks start elsewhere
    order = Order(tuple(map(os.fsencode, sources)), os.fsencode(target), _options(options))
    return Job(order, _in_order([host.name for host in hosts]), rsh_agent)


def _collecting(options: argparse.Namespace) -> Job:
    """Return the job that brings files of hosts to this one.

    Raises:
        HostError, ValueError: as `job_of`.
    """
    if options.hosts is not None:
        raise ValueError("with --collect the hosts are named with their files, as 'h[1-7]:/var/log/app': leave out -H")
    if len(options.paths) < 2:
        raise ValueError("expected HOSTS:PATH, and the directory of this host that gets the files")
    (first, *others), folder = options.paths[:-1], os.path.join(os.getcwd(), options.paths[-1])
    named, path = _split(first)
    rsh_agent = options.rsh_agent or ""
    if options.hostfile is not None and named:
        raise ValueError(f"{first}: with --hostfile, write the files as :PATH")
    if options.hostfile is not None:
        hosts = listed(None, options.hostfile)
    elif named:
        hosts = listed([named], None)
    elif nodes := allocated_hosts():
        hosts, rsh_agent = tuple(map(Host, nodes)), rsh_agent or "srun"
    else:
        raise ValueError(
            f"the hosts are missing: name them, as {shlex.quote(f'h[1-7]{first}')}, or with --hostfile FILE"
        )
    if wrong := next((each for each in others if not each.startswith(":")), None):
        raise ValueError(f"{wrong}: all files are of the same hosts; write further ones as :PATH")
    paths = [path, *(each[1:] for each in others)]
    if not all(paths):
        raise ValueError("a path is missing after the hosts; expected is HOSTS:PATH")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{shown(folder)}: is there, and no directory")
    _refuse_several(hosts, path)
    order = Order(tuple(map(os.fsencode, paths)), os.fsencode(folder), _options(options))
    job = Job(order, _in_order([host.name for host in hosts]), rsh_agent, collects=True)
    if is_own(job.hosts[0], socket.gethostname()):
        for each in map(os.path.realpath, map(below_home, paths)):
            if os.path.join(os.path.realpath(folder), "").startswith(os.path.join(each, "")):
                raise ValueError(f"{shown(folder)}: is in {shown(each)}, which this host would copy into it")
    return job


def _downloading(options: argparse.Namespace) -> Job:
    """Return the job that copies a remote source to hosts.

    Raises:
        HostError, ValueError: as `job_of`.
    """
    source, *others = options.paths
    if len(others) == 1 and options.hosts is None and options.hostfile is None and not re.match(":|.*://", others[0]):
        here = shown(os.path.join(os.getcwd(), others[0]))
        raise ValueError(f"{shown(others[0])}: names no host; this one's path is localhost:{here}")
    if len(others) > 1 or (others and not others[-1].startswith(":")):
        way = "one command for each URL, or a pattern or -r of a store that fsspec reads"
        raise ValueError(f"{name_for_people(source)}: a URL is copied alone: {way}")
    if not others and options.hosts is None:
        raise ValueError("where to? name hosts and destination, as 'h[1-7]:/data/'")
    if options.verify == FULL or options.slow is not None or options.compress == ZSTD:
        raise ValueError(
            f"{name_for_people(source)}: a URL has no digests to compare by: --verify size (the default for URLs) or "
            "none; --slow and --compress zstd are for files of this host"
        )
    options.verify = options.verify or SIZE
    job = _copying(options)
    order = replace(job.order, sources=(os.fsencode(source),), connections=options.connections)
    return replace(job, order=order)


def checked_listing(job: Job) -> Listing:
    """Return the files that this host gives.

    Raises:
        TransferError, ValueError: they cannot be read, or would be copied onto themselves.
    """
    listing = scan([os.fsdecode(source) for source in job.order.sources], job.order.options.recursive)
    if is_own(job.hosts[0], socket.gethostname()):
        _refuse_itself(listing, os.fsdecode(job.order.target))
    return listing


def _options(options: argparse.Namespace) -> Options:
    options.verify = options.verify or FULL
    return Options(**{field.name: getattr(options, field.name) for field in fields(Options)})


def _refuse_several(hosts: Sequence[Host], path: str) -> None:
    """Raise ValueError where a host has several ranks."""
    if re.match(r"\d+:", path):
        raise ValueError(f"{path.partition(':')[0]} ranks on a host have no meaning here; each host has one copy")
    if twice := [host.name for host in hosts if host.slots > 1]:
        raise ValueError(f"{twice[0]} is named twice, or with a number; each host has one copy")


def _in_order(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts with this one first, because the launcher numbers its ranks first.

    Raises:
        ValueError: two of the hosts are this host.
    """
    own = socket.gethostname()
    here = [host for host in hosts if is_own(host, own)]
    if len(here) > 1:
        raise ValueError(f"{here[0]} and {here[1]} are both this host; each host gets one copy")
    return (*here, *(host for host in hosts if host not in here))


def _refuse_itself(listing: Listing, target: str) -> None:
    """Raise ValueError if a file would be copied onto itself on this host."""
    there, names = placed(listing.manifest, os.fsencode(below_home(target)))
    for number, entry in enumerate(listing.manifest.entries):
        place = listing.place(number)
        if entry.kind == DIRECTORY and os.path.realpath(there).startswith(os.path.join(os.path.realpath(place), b"")):
            raise ValueError(f"{shown(place)}: would be copied into itself on this host")
    for number, name in enumerate(names):
        path, place = os.path.join(there, name), listing.place(number)
        if os.path.isfile(path) and os.path.samefile(path, place):
            raise ValueError(f"{shown(place)}: source and destination are the same file on this host")


def _split(text: str) -> tuple[str, str]:
    """Split a text at its first colon outside of brackets into hosts and destination.

    >>> _split("[fe80::1],h[1-3]:/data/a:b")
    ('[fe80::1],h[1-3]', '/data/a:b')
    """
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == ":" and depth == 0:
            return text[:at], text[at + 1 :]
    return text, ""

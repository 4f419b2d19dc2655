"""Run `ringcast doctor`: examine this machine or several hosts, and print the findings."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace

from ringcast.commands.command_line import FAILED, parser, refuse
from ringcast.commands.doctor import report, software
from ringcast.commands.doctor.examine import examine, own_link, probe
from ringcast.commands.doctor.finding import Verdict
from ringcast.commands.doctor.hosts import STARTER, Finds, examine_hosts
from ringcast.commands.doctor.question import Question
from ringcast.config import worker
from ringcast.errors import ConfigError
from ringcast.net import interfaces, ports
from ringcast.net.hostlist import Host, HostError, listed

_COMMAND = "ringcast doctor"
_DESCRIPTION = """\
Check whether a job would run on this machine, or on the named hosts, and say how to remove obstacles."""
_EPILOG = """\
exit code:  0, also with warnings; 1 if a job would fail; 2 for wrong arguments

examples:   ringcast doctor -n 8
            ringcast doctor -H node1,node2,node3 -n 24 --iface 10.0.0.0/8 --port-range 20000-20063
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(argv)
    if options.probe:
        probe(sys.stdin, sys.stdout)
        return 0
    try:
        named = listed(options.hosts, options.hostfile)
        question = _question(options, named)
        starter = shlex.split(options.rsh_agent or "") or STARTER
    except (ConfigError, HostError, ValueError) as error:
        return refuse(_COMMAND, error)
    hosts = [host.name for host in named]
    if hosts:
        question = replace(question, size=max(question.size, len(hosts)))
        found = examine_hosts(hosts, starter, question)
    else:
        found = _here(question)
    failed = any(finding.verdict is Verdict.FAIL for _, finding in found)
    if options.json:
        findings = [{"host": host, **finding.to_json()} for host, finding in found]
        print(json.dumps({"ok": not failed, "findings": findings}, indent=1))
    else:
        report.show(found, hosts, sys.stdout)
    return FAILED if failed else 0


def _here(question: Question) -> Finds:
    """Examine this machine alone."""
    examined = examine(question)
    found = [*software.compare({examined.name: examined.versions}), *examined.findings]
    if examined.address:
        found.append(own_link(examined.address, question))
    return [(examined.name, finding) for finding in found]


def _parser() -> argparse.ArgumentParser:
    made = parser(_COMMAND, _DESCRIPTION, _EPILOG)
    add = made.add_argument
    add(
        "-H",
        dest="hosts",
        action="append",
        metavar="HOST:SLOTS,…",
        help="hosts to examine over ssh, and the links between them",
    )
    add("--hostfile", metavar="FILE", help="the same from a file, as for ringcast-launch")
    add("-n", dest="size", type=int, metavar="N", help="ranks of the job (default: one for every slot)")
    add("--iface", metavar="WHICH", help="as for ringcast-launch (default: RINGCAST_IFACE)")
    add("--port-range", metavar="FIRST-LAST", help="as for ringcast-launch (default: RINGCAST_PORTS)")
    add("--rsh-agent", metavar="COMMAND", help=f"in place of {shlex.join(STARTER)!r}")
    add("--json", action="store_true", help="print JSON")
    add("--probe", action="store_true", help="answer the questions of a doctor on another host on standard input")
    return made


def _question(options: argparse.Namespace, hosts: Sequence[Host]) -> Question:
    said = worker.from_environment()
    size = options.size if options.size is not None else sum(host.slots for host in hosts) or 1
    if size < 1:
        raise ValueError(f"-n {size}: at least one rank is needed")
    iface = said.iface if options.iface is None else options.iface
    interfaces.parse(iface)
    try:
        among = said.ports if options.port_range is None else ports.parse(options.port_range)
    except ValueError as error:
        raise ValueError(f"--port-range {error}") from None
    return Question(size, size, "127.0.0.1", iface, among)

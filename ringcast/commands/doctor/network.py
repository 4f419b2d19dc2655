"""Check route, interface, packet size, the machine's own name, and free ports."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence

import psutil

from ringcast.commands.doctor.finding import Finding, fail, ok, warn
from ringcast.commands.doctor.question import Question
from ringcast.errors import ConfigError
from ringcast.net import interfaces
from ringcast.net.interfaces import ListenAddress
from ringcast.net.ports import PortRange

LEAST_MTU = 1280  # bytes of a packet; IPv6 demands them of every link
_DEBIAN = "map the name to the machine's own address in /etc/hosts"


def check(question: Question) -> tuple[list[Finding], str, int]:
    """Return the findings, the address at which ranks would listen ("": none), and the MTU there (0: not known)."""
    findings = [check_name()]
    try:
        place = interfaces.place(question.towards, question.iface)
    except ConfigError as error:
        fix = "choose another one by --iface, or mend the network or /etc/hosts"
        return [*findings, fail("interface", str(error), fix)], "", 0
    name = next((own.interface for own in interfaces.own_addresses() if own.address == place.address), "?")
    state = psutil.net_if_stats().get(name)
    mtu, address = state.mtu if state else 0, str(place.address)
    free, taken = _free(address, question.ports)
    ports = judge_ports(question.ports, free, taken, question.here)
    return [*findings, judge_place(place, name, question), judge_mtu(name, mtu), ports], address, mtu


def judge_place(place: ListenAddress, interface: str, question: Question) -> Finding:
    """Judge the address at which ranks would listen: other hosts cannot reach a loopback address."""
    text = f"{place.address} on {interface}: {place.why}"
    if place.address.is_loopback and question.here < question.size:
        return fail("interface", f"{text}; other hosts cannot reach it", "name an interface by --iface; " + _DEBIAN)
    return ok("interface", text)


def judge_mtu(interface: str, mtu: int) -> Finding:
    """Judge the largest packet of the interface, in bytes; 0: not known."""
    if mtu == 0 or mtu >= LEAST_MTU:
        return ok("MTU", f"{mtu or 'unknown'} on {interface}")
    return warn("MTU", f"{mtu} on {interface} is very small", f"ip link set {interface} mtu 1500")


def compare_mtu(hosts: Mapping[str, int]) -> list[Finding]:
    """Compare the packet sizes of all hosts: where they differ, large packets may vanish on the way."""
    if len(set(hosts.values())) <= 1:
        return []
    text = ", ".join(f"{mtu} on {host}" for host, mtu in hosts.items())
    return [warn("MTU", f"differs: {text}", "set the same MTU on all hosts; where messages hang, that is why")]


def check_name() -> Finding:
    """Check the addresses of this machine's own name."""
    name = socket.gethostname()
    try:
        found = interfaces.resolve(name)
    except ConfigError:
        found = []
    return judge_name(name, [str(address) for address in found])


def judge_name(name: str, found: Sequence[str]) -> Finding:
    """Judge the addresses of the machine's own name: wrong ones matter not to ringcast, but to many other programs."""
    if not found:
        return warn("host name", f"{name} cannot be resolved", _DEBIAN)
    if all(ipaddress.ip_address(address).is_loopback for address in found):
        text = f"{name} is {', '.join(found)} here, which is another machine elsewhere (ringcast does not use it)"
        return warn("host name", text, _DEBIAN)
    return ok("host name", f"{name} is {', '.join(found)}")


def judge_ports(ports: PortRange | None, free: int, taken: str, here: int) -> Finding:
    """Judge the number of free ports for the ranks on this machine and the control plane; `taken` is the error."""
    needed = here + 1
    if free >= needed:
        return ok("ports", f"{free} of {ports} are free" if ports else "the system gives free ones")
    if ports is None:
        return fail("ports", f"the system gives none: {taken}", "mend the network, or choose another --iface")
    text = f"{free} of {ports} are free, and {needed} are needed here{taken and f' ({taken})'}"
    return fail("ports", text, "end the programs that use them, or give a wider --port-range")


def _free(host: str, ports: PortRange | None) -> tuple[int, str]:
    """Return the number of free ports, and the last error; without a range, of the ports that the system gives."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    free, taken = 0, ""
    for port in range(ports.first, ports.last + 1) if ports else [0]:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen()
            except OSError as error:
                taken = f"{host} port {port}: {error.strerror}"
            else:
                free += 1 if ports else 1 << 16
    return free, taken

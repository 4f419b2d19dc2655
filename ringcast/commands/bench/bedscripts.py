"""Write the shell scripts that make an emulated host: names, own files, links. `ringcast.commands.bench.bed` runs them.

$pid is the number of the shell outside of the host's own process numbers; every script prints it, with "ready", at its
end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

CONGESTION = "cubic"
SHARED_MEMORY = "64m"  # size of /dev/shm, as in a container

READY = 'echo "$pid ready"\n'
_OWN_DEVICES = """\
read -r pid _ </proc/self/stat
mount -t sysfs sysfs /sys
"""
# Where the machine has a firewall, the bridge would ask it about every packet.
_UNFILTERED = """\
for file in /proc/sys/net/bridge/bridge-nf-call-*; do
    if [ -e $file ]; then echo 0 >$file; fi
done
"""
SWITCH_FILES = _OWN_DEVICES + READY


def host_files(name: str, table: str) -> str:
    """Return the script that gives a host its name and its own files."""
    return f"""\
{_OWN_DEVICES}mount -t proc proc /proc  # after which $pid, the number outside, is not known any more
umask 022
mount -t tmpfs tmpfs /dev/shm
cat >/dev/shm/hosts <<end
127.0.0.1 localhost
{table}end
mount --bind /dev/shm/hosts /etc/hosts
umount /dev/shm
mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm
echo {name} >/proc/sys/kernel/hostname
{READY}"""


def link_address(i: int) -> str:
    """Return the address of host i on the Ethernet.

    >>> link_address(258)
    '02:00:00:00:01:02'
    """
    return f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}"


def switch_setup(pids: Sequence[int], rate_bits: int | None) -> str:
    """Return the script that makes the bridge and a link to each host, given by its process 1."""
    commands = ["link add br0 type bridge", "link set br0 up"]
    for i, pid in enumerate(pids):
        commands.append(f"link add p{i} type veth peer name e0 address {link_address(i)} netns {pid}")
        commands.append(f"link set p{i} master br0 up")
    return _batch("ip", commands) + _UNFILTERED + _shape([f"p{i}" for i in range(len(pids))], rate_bits) + READY


def host_setup(i: int, addresses: Sequence[str], rate_bits: int | None) -> str:
    """Return the script that configures host i after its end of the link exists; `addresses` are all hosts'."""
    commands = ["link set lo up", f"address add {addresses[i]}/16 dev e0", "link set e0 up", *_neighbours(i, addresses)]
    settings = f"""\
echo {CONGESTION} >/proc/sys/net/ipv4/tcp_congestion_control
echo 131072 >/proc/sys/net/ipv4/tcp_limit_output_bytes
{READY}
# Orphans of the host become children of process 1; one that ignores their end leaves no zombies.
exec env --ignore-signal=CHLD cat
"""
    return _batch("ip", commands) + _shape(["e0"], rate_bits) + settings


def _neighbours(i: int, addresses: Sequence[str]) -> list[str]:
    """Return commands that give host i permanent entries with the Ethernet addresses of all others.

    Entries that the kernel finds itself share one table of 1024 (gc_thresh3) with all namespaces of the machine: 33
    hosts that all talk to each other need 1056, and connections then fail. Permanent entries do not count.
    """
    others = [(j, address) for j, address in enumerate(addresses) if j != i]
    return [f"neigh add {address} lladdr {link_address(j)} dev e0 nud permanent" for j, address in others]


def _shape(devices: Sequence[str], rate_bits: int | None) -> str:
    """Return commands that set the rate of these ends of links, and keep the order of their packets."""
    steering = "/sys/class/net/$device/queues/rx-0/rps_cpus"
    processors = (1 << min(os.cpu_count() or 1, 32)) - 1  # as bits
    steer = f"if [ -e {steering} ]; then echo {processors:x} >{steering}; fi"
    script = f"for device in {' '.join(devices)}; do {steer}; done\n"
    if rate_bits is None:
        return script
    bucket = f"tbf rate {rate_bits}bit burst 64kb limit 4mb"
    return script + _batch("tc", [f"qdisc add dev {device} root {bucket}" for device in devices])


def _batch(tool: str, commands: Sequence[str]) -> str:
    """Return the script that has one process of `tool` run many of its commands."""
    return "\n".join([f"{tool} -batch - <<end", *commands, "end", ""])

"""Measure `ringcast cp` beside one TCP stream over an emulated long link, for docs/measure/copying.md (root, sshd).

python docs/scripts/cp_long_link.py                       100 MB, 100 Mbit/s, 50 ms, 0.1 % loss, three times in turn
python docs/scripts/cp_long_link.py --nbytes 10000000 --repeat 1 --loss 0

The kernel's own emulation of delay (netem) is not needed: `ringcast.commands.bench.long_link` stands in for it.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from ringcast.commands.bench.long_link import LongLink, long_link
from support.beds import on, run_on
from support.fleets import Fleet, fleet

THERE = "/dev/shm/data"
LIMIT = 900.0  # seconds for one copy
STREAM = """
import socket, sys, time
way, size = sys.argv[1], int(sys.argv[2])
if way == "receive":
    with socket.create_server(("", 5001)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass
        connection.close()
else:
    begun = time.monotonic()
    with socket.create_connection(("h1", 5001)) as connection:
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    print(time.monotonic() - begun)
"""


def main() -> None:
    """Measure both ways in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nbytes", type=int, default=10**8, help="bytes of the file (default 100 MB)")
    parser.add_argument("--rate", type=int, default=10**8, help="bit/s of the link (default 100 Mbit/s)")
    parser.add_argument("--round-trip", type=float, default=0.05, help="seconds (default 0.05)")
    parser.add_argument("--loss", type=float, default=0.001, help="share of the packets that are lost (default 0.001)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each (default 3)")
    options = parser.parse_args()
    link = LongLink(options.rate, options.round_trip / 2, options.loss)
    rows = measured(link, options.nbytes, options.repeat)
    print("| | s | Mbit/s of data | of the link |\n|---|---|---|---|")
    for way, seconds in rows.items():
        rate = 8 * options.nbytes / median(seconds)
        each = ", ".join(f"{second:.1f}" for second in seconds)
        print(f"| {way} | {each} | {rate / 1e6:.1f} | {rate / options.rate:.0%} |")


def measured(link: LongLink, nbytes: int, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of each way."""
    rows: dict[str, list[float]] = {"one TCP stream": [], "the copy of ringcast cp": [], "from Enter to end": []}
    with TemporaryDirectory() as folder, fleet("2", Path(folder)) as hosts:
        program = hosts.program(STREAM)
        on(hosts.bed, 1, "mount", "-o", f"remount,size={2 * nbytes + (64 << 20)}", "/dev/shm")
        (hosts.folder / "source").write_bytes(os.urandom(nbytes))
        with long_link(hosts.bed, 0, 1, link):
            for _ in range(repeat):
                rows["one TCP stream"].append(streamed(hosts, program, nbytes))
                copy, whole = copied(hosts)
                rows["the copy of ringcast cp"].append(copy)
                rows["from Enter to end"].append(whole)
                print({way: seconds[-1] for way, seconds in rows.items()}, file=sys.stderr, flush=True)
    return rows


def streamed(hosts: Fleet, program: str, nbytes: int) -> float:
    """Send bytes by one TCP stream; return the seconds."""
    command = [sys.executable, program, "receive", str(nbytes)]
    with hosts.bed.start(1, command, stdout=subprocess.PIPE) as receiver:
        receiver.stdout.readline()
        done = run_on(hosts.bed, 0, [sys.executable, program, "send", str(nbytes)], LIMIT)
    return float(done.stdout)


def copied(hosts: Fleet) -> tuple[float, float]:
    """Copy the file; return the seconds that the copy tells, and those from Enter to the end."""
    command = [sys.executable, "-m", "ringcast", "cp", str(hosts.folder / "source"), "-H", f"h1:{THERE}/"]
    begun = time.monotonic()
    done = run_on(hosts.bed, 0, command, LIMIT, hosts.environment)
    whole = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    found = on(hosts.bed, 1, "sha256sum", f"{THERE}/source").split()[0]
    assert found == on(hosts.bed, 0, "sha256sum", str(hosts.folder / "source")).split()[0]
    on(hosts.bed, 1, "rm", "-rf", THERE)
    told = re.search(r"sent in ([0-9.]+) s", done.stdout)
    assert told is not None, done.stdout
    return float(told[1]), whole


if __name__ == "__main__":
    main()

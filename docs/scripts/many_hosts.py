"""Measure how long it takes to start a job on several emulated hosts over a real ssh (needs root, sshd).

python docs/scripts/many_hosts.py 8 --each 8
"""

import argparse
import compileall
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import ringcast
from ringcast.commands.bench.bed import Bed
from ringcast_launcher.plan.job import THREAD_VARIABLES
from support.sshd import ssh_bed

FIRST_LINE = "print('first', flush=True)\n"
MET = "import ringcast\ncomm = ringcast.init()\ncomm.barrier()\nprint('met', flush=True)\n"


def main() -> None:
    """Start, in turn, processes that only import numpy and the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", type=int, help="number of hosts")
    parser.add_argument("--each", type=int, default=8, help="ranks on each host (default 8)")
    parser.add_argument("--repeat", type=int, default=5, help="how often (default 5)")
    options = parser.parse_args()
    compileall.compile_dir(Path(ringcast.__file__).parent, quiet=1)  # as an installed package is, and numpy
    size = options.hosts * options.each
    with ssh_bed(str(options.hosts)) as bed, TemporaryDirectory() as folder:
        script = Path(folder) / "hello.py"
        script.write_text(FIRST_LINE + MET)
        pairs = [(imports(size), job(bed, options.each, script)) for _ in range(options.repeat)]
    bare = median(pair[0] for pair in pairs)
    first, met = (median(pair[1][i] for pair in pairs) for i in (0, 1))
    ratios = [median(pair[1][i] / pair[0] for pair in pairs) for i in (0, 1)]
    print(f"{size} imports of numpy {bare:.1f} s; {size} ranks on {options.hosts} hosts: ", end="")
    print(f"all in their first line {first:.1f} s ({ratios[0]:.1f} times), all met {met:.1f} s ({ratios[1]:.1f} times)")


def imports(p: int) -> float:
    """Return the seconds that p processes take which import numpy, with one thread each, as ranks have."""
    command, env = [sys.executable, "-c", "import numpy"], {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    begin = time.perf_counter()
    for process in [subprocess.Popen(command, env=env) for _ in range(p)]:
        process.wait()
    return time.perf_counter() - begin


def job(bed: Bed, each: int, script: Path) -> tuple[float, float]:
    """Return the seconds until all ranks are in their first line, and until all have passed a barrier."""
    hosts = ",".join(f"{host.name}:{each}" for host in bed.hosts)
    command = [sys.executable, "-m", "ringcast_launcher", "-H", hosts, "--output", "none", str(script)]
    counts, seconds = {"first": 0, "met": 0}, {}
    begin = time.perf_counter()
    with bed.start(
        0, command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as launcher:
        for line in launcher.stdout:
            counts[line.strip()] += 1
            seconds[line.strip()] = time.perf_counter() - begin
    assert counts == dict.fromkeys(counts, each * len(bed.hosts)), counts
    return seconds["first"], seconds["met"]


if __name__ == "__main__":
    main()

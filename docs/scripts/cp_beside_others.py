"""Measure `ringcast cp` on emulated hosts over a real ssh: the tables of docs/measure/copying.md (needs root, sshd).

python docs/scripts/cp_beside_others.py --write                            all of the page, and its drawing
python docs/scripts/cp_beside_others.py --case others --repeat 1           one table, printed
python docs/scripts/cp_beside_others.py --case others --bed 2x100mbit --nbytes 1000000 --ways scp uftp

The case `others` copies one random file by all ways in turn; the cases that follow are of `ringcast cp` alone.
"""

import argparse
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cp_ways import CP, FILE, PROGRAMS, THERE, WAYS

from ringcast.commands.bench.bed import parse
from ringcast.commands.bench.limits import payload
from support.beds import on, run_on
from support.fleets import Fleet, fleet

ROOT = Path(__file__).resolve().parents[2]
PAGE, DRAW = ROOT / "docs/measure/copying.md", ROOT / "docs/figures/make_copying.py"
LIMIT = 900.0  # seconds for one copy
TREE = "/dev/shm/many"
PER_DIRECTORY, SMALL = 1000, 1000  # files, and bytes of each


@dataclass(frozen=True)
class Copy:
    """One copy: seconds from Enter to the end, and most bytes that a host has sent or received."""

    seconds: float
    sent: int
    busiest: int
    copy: float = 0.0  # seconds of the copy itself, which ringcast alone tells


def main() -> None:
    """Run the cases that are asked for, and print or write their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=["others", *CASES], default=["others", *CASES])
    parser.add_argument("--bed", default="8x100mbit", help="hosts of the case others (default 8x100mbit)")
    parser.add_argument("--nbytes", type=int, default=10**8, help="bytes of its file (default 100 MB)")
    parser.add_argument("--ways", nargs="+", help="ways beside ringcast, by their first words (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write there every copy")
    parser.add_argument("--write", action="store_true", help="put the tables into the page, and draw them")
    options = parser.parse_args()
    measured: dict[str, list[dict[str, float]]] = {}
    tables = []
    if "others" in options.case:
        found = others(options.bed, options.nbytes, options.ways, options.repeat)
        measured |= {way: [asdict(copy) for copy in copies] for way, copies in found.items()}
        tables.append(table_of_others(found, options.nbytes, options.bed))
    rows = [row for case in options.case if case in CASES for row in CASES[case](options.repeat)]
    if rows:
        tables.append("\n".join(["| case | asked for | measured |", "|---|---|---|", *rows]))
    text = "\n\n".join([*tables, versions()])
    print(text)
    if options.json:
        options.json.write_text(json.dumps({**measured, "text": text}, indent=1) + "\n")
    if options.write:
        write(tables)


# One file by all ways.


def others(bed: str, nbytes: int, ways: Sequence[str] | None, repeat: int) -> dict[str, list[Copy]]:
    """Copy a file by each way that is installed, in turn."""
    chosen = {name: way for name, way in WAYS.items() if wanted(name, ways)}
    found: dict[str, list[Copy]] = {name: [] for name in chosen}
    with hosts(bed, 2 * nbytes + (64 << 20)) as made:
        make_file(made, nbytes)
        expected = digest(made, 0, FILE)
        for turn in range(repeat):
            for name, way in chosen.items():
                for host in range(1, len(made.bed.hosts)):
                    on(made.bed, host, "mkdir", "-p", THERE)
                folder = made.folder / f"{turn} {name}".replace(" ", "-")
                folder.mkdir()
                with way(made.bed, folder) as command:
                    found[name].append(timed(made, command))
                for host in range(1, len(made.bed.hosts)):
                    assert digest(made, host, f"{THERE}/source") == expected, (name, host)
                    on(made.bed, host, "rm", "-rf", THERE)
    return found


def wanted(name: str, ways: Sequence[str] | None) -> bool:
    """Return whether a way is asked for, or, where none is named, can be measured here."""
    word = re.split(r"[ ,]", name)[0]
    if ways is not None:
        return word in ("ringcast", *ways)
    return word not in PROGRAMS or shutil.which(PROGRAMS[word]) is not None


def table_of_others(found: dict[str, list[Copy]], nbytes: int, bed: str) -> str:
    """Return the table: medians, and what each takes of the time that the links need for the file."""
    rate = parse(bed)[1]
    rows = [(median(c.seconds for c in copies), median(c.sent for c in copies), way) for way, copies in found.items()]
    lines = ["| | s | of the limit | MB sent by the first host |", "|---|---|---|---|"]
    for seconds, sent, way in sorted(rows):
        ratio = f"{seconds * payload(rate) / nbytes:.2f}" if rate else "–"
        lines.append(f"| {way} | {seconds:.1f} | {ratio} | {sent / 1e6:,.0f} |")
    return "\n".join(lines)


# `ringcast cp` alone: each case returns lines of the second table.


def many_hosts(repeat: int) -> list[str]:
    """Copy to 35 others."""
    nbytes, rate = 20_000_000, 20_000_000
    with hosts("36x20mbit", 3 * nbytes) as made:
        make_file(made, nbytes)
        copies = [fresh_copy(made) for _ in range(repeat)]
    times, limit = median(copy.copy for copy in copies), nbytes / payload(rate)
    whole = median(copy.seconds for copy in copies)
    return [
        f"| 36 hosts of 20 Mbit/s, 20 MB, limit {limit:.2f} s | copy {1.1 * limit:.1f} s "
        f"| copy {times:.1f} s, {times / limit:.2f} times the limit; from Enter to end {whole:.1f} s |"
    ]


def again(repeat: int) -> list[str]:
    """Copy 100 MB, and once more what is there."""
    nbytes = 10**8
    with hosts("8x100mbit", 2 * nbytes) as made:
        make_file(made, nbytes)
        first, copies = fresh_copy(made, keep=True), []
        for _ in range(repeat):
            copies.append(cp(made, FILE))
    limit, busiest = nbytes / payload(10**8), max(copy.busiest for copy in copies)
    return [
        f"| 8 hosts of 100 Mbit/s, 100 MB, limit {limit:.2f} s | copy 8.9 s, from Enter to end 11 s "
        f"| copy {first.copy:.1f} s, from Enter to end {first.seconds:.1f} s |",
        "| the same again, all is there | 2 s, 1 MB on any link "
        f"| {median(copy.seconds for copy in copies):.1f} s, {busiest / 1e6:.2f} MB |",
    ]


def two_hosts(repeat: int) -> list[str]:
    """Copy 1 GB without a limit between memory-backed files."""
    nbytes = 10**9
    with hosts("2", 2 * nbytes) as made:
        big_file(made)
        seconds = median(fresh_copy(made).copy for _ in range(repeat))
    return [f"| 2 hosts, links without a limit, 1 GB | 1 GB/s | {nbytes / seconds / 1e9:.2f} GB/s |"]


def small_files(repeat: int) -> list[str]:
    """Copy a tree of small files to three others."""
    count = 100_000
    with hosts("4", 10**9) as made:
        small_tree(made)
        copies = [fresh_copy(made, "-r", TREE) for _ in range(repeat)]
    seconds, whole = (median(getattr(copy, name) for copy in copies) for name in ("copy", "seconds"))
    return [
        f"| 4 hosts, links without a limit, {count:,} files of 1 kB | 20 MB/s "
        f"| {count / seconds:,.0f} files/s, {count * SMALL / seconds / 1e6:.1f} MB/s; from Enter to end {whole:.1f} s |"
    ]


def memory(_: int) -> list[str]:
    """Compare the most memory that a rank has had with a rank that did nothing."""
    rows = []
    for what, make, arguments in ("1 GB", big_file, [FILE]), ("100,000 files", small_tree, ["-r", TREE]):
        with hosts("2", 3 * 10**9) as made:
            make(made)
            idle = idle_memory(made)
            most = most_memory(made, [*CP, *arguments, "-H", f"h1:{THERE}/"])
        first, other = ((rank - idle) / 1024 for rank in most)
        rows.append(f"| memory beyond an idle rank's, {what} | 64 MiB | {first:.0f} and {other:.0f} MiB |")
    return rows


def big_file(made: Fleet) -> None:
    """Make a file of 1 GB."""
    make_file(made, 10**9)


def small_tree(made: Fleet) -> None:
    """Make 100,000 files of 1 kB."""
    make_tree(made, 100_000)


CASES: dict[str, Callable[[int], list[str]]] = {
    "many-hosts": many_hosts,
    "again": again,
    "two-hosts": two_hosts,
    "small-files": small_files,
    "memory": memory,
}


# What the cases share.


@contextmanager
def hosts(text: str, room: int) -> Iterator[Fleet]:
    """Make hosts, each with so many bytes of room in its /dev/shm."""
    with TemporaryDirectory(prefix="rc-cp-") as folder, fleet(text, Path(folder)) as made:
        for host in range(len(made.bed.hosts)):
            on(made.bed, host, "mount", "-o", f"remount,size={room}", "/dev/shm")
        yield made


def make_file(made: Fleet, nbytes: int) -> None:
    """Make the file of random bytes on the first host."""
    on(made.bed, 0, "sh", "-c", f"head -c {nbytes} /dev/urandom >{FILE}")


def make_tree(made: Fleet, count: int) -> None:
    """Make small files on the first host, in directories of a thousand."""
    script = (
        "import os\n"
        f"for number in range({count}):\n"
        f"    folder = f'{TREE}/{{number // {PER_DIRECTORY}}}'\n"
        "    os.makedirs(folder, exist_ok=True)\n"
        f"    open(f'{{folder}}/{{number}}', 'wb').write(os.urandom({SMALL}))\n"
    )
    on(made.bed, 0, sys.executable, "-c", script)


def digest(made: Fleet, host: int, path: str) -> str:
    """Return what sha256sum says of a file."""
    return on(made.bed, host, "sha256sum", path).split()[0]


def timed(made: Fleet, command: Sequence[str]) -> Copy:
    """Run a command on the first host, which must succeed."""
    count = range(len(made.bed.hosts))
    before = [made.bed.carried(host) for host in count]
    begin = time.perf_counter()
    done = run_on(made.bed, 0, command, LIMIT, made.environment)
    seconds = time.perf_counter() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    carried = [[after - old for after, old in zip(made.bed.carried(host), before[host], strict=True)] for host in count]
    return Copy(seconds, carried[0][0], max(max(both) for both in carried))


def cp(made: Fleet, *arguments: str) -> Copy:
    """Copy by ringcast to all others."""
    report = made.folder / "report.json"
    where = f"h[1-{len(made.bed.hosts) - 1}]:{THERE}/"
    copy = timed(made, [*CP, *arguments, "-H", where, "--json-report", str(report)])
    return Copy(copy.seconds, copy.sent, copy.busiest, json.loads(report.read_text())["seconds"])


def fresh_copy(made: Fleet, *arguments: str, keep: bool = False) -> Copy:
    """Copy what is not there, by default the file, compare it, and remove it."""
    copy = cp(made, *(arguments or (FILE,)))
    source = arguments[-1] if arguments else FILE
    for host in range(1, len(made.bed.hosts)):
        assert listing(made, host, THERE) == listing(made, 0, os.path.dirname(source))
        if not keep:
            on(made.bed, host, "rm", "-rf", THERE)
    return copy


def listing(made: Fleet, host: int, folder: str) -> str:
    """Return one digest of all files below a directory."""
    return on(made.bed, host, "sh", "-c", f"cd {folder} && find . -type f -print0 | sort -z | xargs -0 cat | sha256sum")


def idle_memory(made: Fleet) -> int:
    """Return the kB that a rank has had at most that only met the others."""
    program = made.program(
        "import ringcast\nringcast.init().barrier()\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    done = made.launch("-H", "h0,h1", "--output", "none", program)
    return max(int(line) for line in done.stdout.split())


def most_memory(made: Fleet, command: Sequence[str]) -> list[int]:
    """Return the kB that the rank on each host has had at most, as the kernel counted when it was last asked."""
    most = [0] * len(made.bed.hosts)
    with made.bed.start(0, command, env=made.environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for host in range(len(most)):
                for pid in made.workers(host):
                    most[host] = max(most[host], high_water(pid))
            time.sleep(0.02)
    assert process.returncode == 0
    return most


def high_water(pid: int) -> int:
    """Return the most memory of a process in kB; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


# The page.


def versions() -> str:
    """Return what was measured, and how busy the machine was before."""
    asked = {"OpenSSH": "ssh -V", "rsync": "rsync --version", "Slurm": "slurmd -V", "UFTP": "uftp -I lo /nothing"}
    found = [f"Python {platform.python_version()}", f"Linux {platform.release()}"]
    for name, command in asked.items():
        words = command.split()
        if shutil.which(words[0]):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            number = re.search(r"\d+(\.\d+)+(p\d+)?", done.stdout + done.stderr)
            found.append(f"{name} {number[0]}" if number else name)
    return f"{', '.join(found)}; load {os.getloadavg()[0]:.1f} at the end"


def write(tables: Sequence[str]) -> None:
    """Put each table in the place of the one in the page that has its heading, and draw the first."""
    page = PAGE.read_text()
    for table in tables:
        heading = re.escape(table.splitlines()[0])
        page, count = re.subn(rf"^{heading}\n(\|.*\n)+", lambda _, new=table: new + "\n", page, flags=re.MULTILINE)
        assert count == 1, heading
    PAGE.write_text(page)
    runpy.run_path(str(DRAW), run_name="__main__")


if __name__ == "__main__":
    main()

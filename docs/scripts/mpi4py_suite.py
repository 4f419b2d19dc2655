"""Run mpi4py's own test suite on ringcast.MPI, unmodified, each file in a job of its own: the table of mpi4py.md.

python docs/scripts/mpi4py_suite.py --write                 all files at n = 1, 2, 3, 4, 5, 7, into docs/use/mpi4py.md
python docs/scripts/mpi4py_suite.py test_cco_obj -n 3       this file, on standard output alone, with all failures

The source distribution is fetched from the package index once, and its digest compared. Its pure-Python parts
(`mpi4py.util`, `mpi4py.futures`) work on top; nothing of it is compiled, and no library of MPI is loaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
import unittest
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/use/mpi4py.md"
BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"
INDEX = "https://pypi.org/simple"
NAME, VERSION = "mpi4py", "4.1.2"
DIGEST = "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02"
SIZES = (1, 2, 3, 4, 5, 7)
LIMIT = 900  # seconds for a job: seven ranks take up to 350 for a file on two cores
# Tests of what mpi4py is compiled to, by the beginnings of their names.
OUTSIDE = {
    "test_cffi.": "C handles",
    "test_ctypes.": "C handles",
    "test_objmodel.TestObjModel.testConstants": "a buffer of no object, which compiled code alone can export",
    "test_package.TestDataFiles.testHeaders": "C headers, made when mpi4py is compiled",
    "test_package.TestMPIABI.testGetFromLibMPI": "libmpi",
    "test_package.TestMPIABI.testLibMPI": "libmpi",
    "test_package.TestMPIABI.testFinder": "mpi4py's extension module",
}
ABSENT = {"test_dynproc": "ringcast has no MPI dynamic processes"}  # ranks of these wait for one that has been refused
ORDER = ("skip", "pass", "fail")  # of what ranks say of a test the last one counts
DONE = "done"
NO_SPAWN = "MPI4PY_TEST_SPAWN"  # the suite's own variable
REPORT = "SUITE_REPORT"  # in the environment of a rank: the folder for its results


@dataclass
class Results:
    """The results of one job: of each test the worst outcome on any rank."""

    tests: dict[str, tuple[str, str]] = field(default_factory=dict)  # name → pass, skip, fail; why
    ended: str = ""  # how the job ended where it should not have

    @property
    def counts(self) -> Counter[str]:
        """How many passed, were skipped, and failed; a job that did not end well counts as a failure."""
        return Counter(outcome for outcome, _ in self.tests.values()) + Counter(fail=int(bool(self.ended)))


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="test files, by their names or beginnings of them (default: all)")
    parser.add_argument("-n", dest="sizes", type=int, nargs="+", default=SIZES, help="numbers of ranks")
    parser.add_argument("-k", dest="patterns", action="append", default=[], help="only tests with this in their name")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for a job (default {LIMIT})")
    parser.add_argument("--write", action="store_true", help="write the table into docs/use/mpi4py.md")
    options = parser.parse_args()
    folder = fetched(NAME, VERSION, DIGEST)
    found: dict[str, dict[int, Results]] = {}
    for file in chosen(folder, options.files):
        for size in options.sizes:
            begin = time.perf_counter()
            results = found.setdefault(file.stem, {})[size] = run(file, size, options.patterns, options.limit)
            print(f"{file.stem} n={size}: {said(results.counts)} {time.perf_counter() - begin:.1f} s", flush=True)
            for name, (outcome, why) in results.tests.items():
                if outcome == "fail":
                    print(f"  {name}\n{why}")
            if results.ended:
                print(f"  {results.ended}")
    if options.write:
        put(BEGIN, table(found), END)
    sys.exit(any(results.counts["fail"] for of_file in found.values() for results in of_file.values()))


def put(begin: str, text: str, end: str) -> None:
    """Write a text into the page, between two marks."""
    page = PAGE.read_text()
    PAGE.write_text(f"{page.partition(begin)[0]}{begin}\n{text}\n{end}{page.partition(end)[2]}")


def fetched(name: str, version: str, digest: str = "") -> Path:
    """Return the folder with a source distribution, which is fetched from the package index unless it is there.

    Raises:
        SystemExit: the index cannot be reached, or what came has another digest than this one, or that of the index.
    """
    stem = f"{name}-{version}"
    folder = cache() / stem
    if folder.exists():
        return folder
    file = f"{stem}.tar.gz"
    try:
        entry = next(each for each in json.loads(read(f"{INDEX}/{name}/"))["files"] if each["filename"] == file)
        data = read(entry["url"])
    except (OSError, StopIteration) as error:
        raise SystemExit(f"{file} cannot be fetched from {INDEX}: {error or 'it is not there'}") from error
    expected = digest or entry["hashes"]["sha256"]
    if (came := hashlib.sha256(data).hexdigest()) != expected:
        raise SystemExit(f"{file} has the SHA-256 digest {came} instead of {expected}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as made:
        with tarfile.open(fileobj=BytesIO(data)) as tar:
            tar.extractall(made, filter="data")
        try:
            Path(made, stem).rename(folder)
        except OSError:  # another process was quicker
            if not folder.exists():
                raise
    return folder


def read(url: str) -> bytes:
    """Return what is at a URL; of the index's pages as JSON."""
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json, */*;q=0.1"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        data: bytes = answer.read()
    return data


def cache() -> Path:
    """Return the folder for what is fetched."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ringcast")


def chosen(folder: Path, names: list[str]) -> list[Path]:
    """Return the test files that are asked for."""
    files = sorted(folder.glob("test/test_*.py"))
    wanted = tuple(name.removesuffix(".py") for name in names)
    found = [file for file in files if not wanted or file.stem.startswith(wanted)]
    if not found:
        raise SystemExit(f"no test file begins with {', '.join(names)}")
    exact = [file for file in found if file.stem in wanted]
    return exact if wanted and len(exact) == len(wanted) else found


def run(file: Path, size: int, patterns: list[str], limit: float = LIMIT) -> Results:
    """Run a test file in a job of this many ranks."""
    if file.stem in ABSENT:
        return Results({file.stem: ("skip", ABSENT[file.stem])})
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), "--as-mpi4py", "--timeout", str(limit)]
    with TemporaryDirectory() as reports:
        others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        job = subprocess.run(
            [*command, __file__, str(file), *patterns],
            env={
                **os.environ,
                REPORT: reports,
                NO_SPAWN: "no",
                "PYTHONPATH": os.pathsep.join([str(file.parents[1] / "src"), *others]),
            },
            cwd=file.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        of_ranks = [outcomes(Path(reports, str(rank))) for rank in range(size)]
    results = Results()
    for of_rank in of_ranks:
        for name, found in of_rank.items():
            results.tests[name] = max(found, results.tests.get(name, found), key=lambda each: ORDER.index(each[0]))
    if job.returncode or any(DONE not in of_rank for of_rank in of_ranks):
        tail = "\n".join((job.stdout + job.stderr).splitlines()[-30:])
        results.ended = f"ended with exit code {job.returncode}\n{tail}"
    results.tests.pop(DONE, None)
    return results


def outcomes(report: Path) -> dict[str, tuple[str, str]]:
    """Return the outcomes that a rank has written: the last one of each test, as it writes one at its beginning."""
    if not report.exists():
        return {}
    return {name: (outcome, why) for name, outcome, why in map(json.loads, report.read_text().splitlines())}


class Recorder(unittest.TestResult):
    """Writes the outcome of each test of this rank as a line of JSON."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file.open("w")

    def write(self, name: str, outcome: str, why: str = "") -> None:
        """Write a line."""
        self.file.write(json.dumps([name, outcome, why]) + "\n")
        self.file.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.write(test.id(), "fail", "did not end")

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.write(test.id(), "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.write(test.id(), "skip", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        if issubclass(err[0], NotImplementedError) and "ringcast has no" in str(err[1]):
            self.write(test.id(), "skip", str(err[1]))  # most tests look for it themselves
        else:
            self.addFailure(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.write(test.id(), "fail", self._exc_info_to_string(err, test))

    def addSubTest(self, test: unittest.TestCase, _: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addExpectedFailure(self, test: unittest.TestCase, _: Any) -> None:
        self.write(test.id(), "pass")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.write(test.id(), "fail", "passed unexpectedly")


def rank_main(file: Path, patterns: list[str]) -> None:
    """Run a test file in this rank, as the suite's own main program does, which hides modules in this way."""
    sys.path[0] = str(file.parent)
    sys.modules["cupy"] = sys.modules["numba"] = None  # type: ignore[assignment]
    from mpi4py import MPI

    recorder = Recorder(Path(os.environ[REPORT], str(MPI.COMM_WORLD.Get_rank())))
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns] or None
    suite = unittest.TestSuite()
    for test in each(loader.loadTestsFromName(file.stem)):
        if outside := [why for name, why in OUTSIDE.items() if test.id().startswith(name)]:
            recorder.addSkip(test, outside[0])
        else:
            suite.addTest(test)
    suite.run(recorder)
    recorder.write(DONE, "pass")


def each(tests: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    """Return the tests of a suite in their order."""
    if isinstance(tests, unittest.TestCase):
        yield tests
    else:
        for part in tests:
            yield from each(part)


def said(counts: Counter[str]) -> str:
    """Return the counts as a cell of the table."""
    words = {"pass": "passed", "skip": "skipped", "fail": "failed"}
    return ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts[key]) or "nothing"


def table(found: dict[str, dict[int, Results]]) -> str:
    """Return the table: a line per file, with passed/skipped/failed at each number of ranks, and why."""
    sizes = list(next(iter(found.values())))
    lines = [f"| file | {' | '.join(f'n = {n}' for n in sizes)} | skipped because |", "|---" * (len(sizes) + 2) + "|"]
    total: dict[int, Counter[str]] = {n: Counter() for n in sizes}
    for name, of_file in found.items():
        reasons = Counter(why for results in of_file.values() for is_, why in results.tests.values() if is_ == "skip")
        for n, results in of_file.items():
            total[n] += results.counts
        cells = [cell(results.counts) for results in of_file.values()]
        lines.append(f"| {name} | {' | '.join(cells)} | {'; '.join(sorted(reasons))} |")
    lines.append(f"| **all** | {' | '.join(cell(total[n]) for n in sizes)} | |")
    return "\n".join(lines)


def cell(counts: Counter[str]) -> str:
    """Return passed/skipped, and what failed."""
    failed = f", **{counts['fail']} failed**" if counts["fail"] else ""
    return f"{counts['pass']}/{counts['skip']}{failed}"


if __name__ == "__main__":
    if REPORT in os.environ:
        rank_main(Path(sys.argv[1]), sys.argv[2:])
    else:
        main()

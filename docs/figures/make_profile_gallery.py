"""Picture the pages of docs/scripts/profile_gallery/, and print how long faulty and mended programs take.

python docs/figures/make_profile_gallery.py           writes docs/figures/profile/*.png (needs chromium)
python docs/figures/make_profile_gallery.py --times   prints the medians of five runs of each, in turn

Two of the programs run on emulated hosts, which need root.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from ringcast.commands.bench.bed import Bed
from support.beds import ENVIRONMENT, run_on
from support.browser import Page, browser
from support.sshd import ssh_bed

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "docs/scripts/profile_gallery"
HERE, TWO, FOUR = ["-n", "2"], ["-H", "h0,h1"], ["-H", "h0,h1,h2,h3"]
WHERE = {"slow_rank": HERE, "small_calls": HERE, "objects": HERE, "root": FOUR, "no_overlap": TWO}
BED = "4x200mbit"
REPEAT = 5
WIDTH, HEIGHT = 1100, 640


def main() -> None:
    """Run all programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", action="store_true", help="print times, and make no picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ssh_bed(BED) as bed:
        if options.times:
            for name in WHERE:
                runs = [[span(bed, name, mended, Path(folder)) for mended in (False, True)] for _ in range(REPEAT)]
                faulty, mended = (median(times) for times in zip(*runs, strict=True))
                print(f"{name:12} {faulty:.2f} s, mended {mended:.2f} s: {faulty / mended:.2f} times", flush=True)
        else:
            pictures(bed, Path(folder))


def pictures(bed: Bed, folder: Path) -> None:
    """Take a picture of the first screen of each faulty program's page."""
    files = {name: folder / f"{name}.html" for name in WHERE}
    for name, file in files.items():  # before there is a browser, which takes processors from them
        run(bed, name, [], file)
    with browser(folder) as pipe:
        for name, file in files.items():
            page = Page(pipe)
            page.resize(WIDTH, HEIGHT)
            page.theme("light")
            page.open(file)
            page.picture(Path(__file__).with_name("profile") / f"{name}.png")
            page.close()


def span(bed: Bed, name: str, mended: bool, folder: Path) -> float:
    """Return the seconds that a program takes, from the first rank's start to the last one's end."""
    file = folder / "profile.json"
    run(bed, name, ["--mended"] * mended, file)
    return float(json.loads(file.read_text())["span"])


def run(bed: Bed, name: str, arguments: list[str], file: Path) -> None:
    """Run a program with a profile, which goes to a file."""
    program = str((PROGRAMS / f"{name}.py").relative_to(ROOT))
    command = [sys.executable, "-m", "ringcast_launcher", *WHERE[name], "--profile", str(file), program, *arguments]
    if WHERE[name] is not HERE:
        done = run_on(bed, 0, ["sh", "-c", 'cd "$0" && exec "$@"', str(ROOT), *command])
    else:
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()

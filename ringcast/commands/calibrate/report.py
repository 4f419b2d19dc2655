"""Show measurements beside the predictions of the fitted constants: as a table, in a sentence, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ringcast._util.output_files import write_whole
from ringcast.algorithms import ALGORITHMS
from ringcast.algorithms.network import Network
from ringcast.commands.calibrate.fit import Sample

_COLUMNS = "collective      algorithm         from      bytes blocks rounds  measured ms predicted ms   error"


def table(samples: Sequence[Sample], network: Network) -> str:
    """Return a line for each sample, the smallest first."""
    return "\n".join([_COLUMNS, *(_row(sample, network) for sample in sorted(samples, key=lambda s: s.nbytes))])


def accuracy(samples: Sequence[Sample], network: Network) -> str:
    """Return one sentence on the errors of the fit."""
    errors = [abs(sample.error(network)) for sample in samples]
    return f"of {len(errors)} times half are predicted within {median(errors):.0%}, all within {max(errors):.0%}"


def plot(samples: Sequence[Sample], network: Network, path: Path, title: str) -> None:
    """Draw times over sizes with both axes logarithmic: measured ones are points, predicted ones lines.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds", title=title)
    for i, (name, line) in enumerate(_lines(samples).items()):
        sizes, style = [sample.nbytes for sample in line], "-" if i < 10 else "--"  # there are ten colours
        axes.plot(sizes, [sample.predicted(network) for sample in line], style, color=f"C{i % 10}", label=name)
        axes.plot(sizes, [sample.seconds for sample in line], "o", color=f"C{i % 10}", markersize=4)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", title="points: measured, lines: predicted")
    write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:]))


def _row(sample: Sample, network: Network) -> str:
    rounds = ALGORITHMS[sample.collective][sample.algorithm].rounds(sample.params)
    what = f"{sample.collective:15} {sample.algorithm:17} {_contributors(sample):6} {sample.nbytes:8}"
    times = f"{sample.seconds * 1e3:12.3f} {sample.predicted(network) * 1e3:12.3f} {sample.error(network):+7.0%}"
    return f"{what} {sample.params.nblocks:6} {rounds:6} {times}"


def _contributors(sample: Sample) -> str:
    return "all" if all(sample.params.contributions) else "rank 0"


def _lines(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Return the samples grouped into lines: the samples of a line differ only in their size."""
    lines: dict[str, list[Sample]] = {}
    for sample in sorted(samples, key=lambda s: s.nbytes):
        kind = f"{sample.collective} {sample.algorithm}, {_contributors(sample)}, n = {sample.params.nblocks}"
        lines.setdefault(kind, []).append(sample)
    return lines

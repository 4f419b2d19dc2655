"""List the papers and books that describe the algorithms."""

from __future__ import annotations

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True)
class Paper:
    """A publication, by the name under which `ringcast explain` lists it."""

    short: str
    title: str


TRAEFF_2022 = Paper(
    "Träff 2022", "Träff, (Poly)logarithmic time construction of round-optimal n-block broadcast schedules, 2022"
)
RING_2010 = Paper(
    "Träff et al. 2010", "Träff et al., A pipelined algorithm for large, irregular all-gather problems, 2010"
)
SANDERS = Paper(
    "Sanders & Sibeyn 2003",
    "Sanders and Sibeyn, A bandwidth latency tradeoff for broadcast and reduction, IPL 86, 2003",
)
GRAMA = Paper("Grama et al. 2003", "Grama, Gupta, Karypis, Kumar, Introduction to Parallel Computing, 2003, chapter 4")
LANG_2025 = Paper("Lang 2025", "Lang, Modified Bruck/Dissemination algorithm for commutative reduction in MPI, 2025")
RABENSEIFNER = Paper("Rabenseifner 2004", "Rabenseifner, Optimization of collective reduction operations, ICCS 2004")
REDUCE_SCATTER = Paper(
    "arXiv 2410.14234", "Träff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234"
)
REVERSAL = Paper("arXiv 2407.18004", "Träff, Optimal broadcast schedules in logarithmic time, arXiv 2407.18004")
DUAL_ROOT = Paper(
    "arXiv 2109.12626", "Träff, A doubly-pipelined, dual-root reduction-to-all algorithm, arXiv 2109.12626"
)
EXSCAN = Paper("arXiv 2604.25667", "Träff, Two efficient message-passing exclusive scan algorithms, arXiv 2604.25667")
EXSCAN_123 = Paper("arXiv 2507.04785", "Träff, exclusive prefix sums by 123-doubling, arXiv 2507.04785")
HILLIS_STEELE = Paper("Hillis & Steele 1986", "Hillis and Steele, Data parallel algorithms, CACM 29(12), 1986")
THAKUR = Paper(
    "Thakur et al. 2005",
    "Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH, IJHPCA 19(1), 2005",
)
LANES = Paper(
    "Träff & Hunold 2020", "Träff and Hunold, Decomposing MPI collectives for exploiting multi-lane communication, 2020"
)
RINGCAST = Paper("ringcast", "ringcast, docs/understand/algorithms.md")

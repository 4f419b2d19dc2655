"""Measure what docs/measure/performance.md tells, and print it.

python docs/scripts/measure.py rounds                  CPU per round and rank on the simulated wire
python docs/scripts/measure.py schedules               time to make schedules
python docs/scripts/measure.py growth                  CPU per rank of merge_sorted, for more and more ranks
python docs/scripts/measure.py recorder                what the flight recorder takes for an operation
python docs/scripts/measure.py rendezvous              from the last Hello until all of 64 ranks have the roster
python docs/scripts/measure.py enter                   from Enter to the first line of four ranks, and past a barrier
python docs/scripts/measure.py job                     processor time of jobs of four ranks beside imports of numpy
python docs/scripts/measure.py cluster                 runs of an empty function by a cluster of four ranks
python docs/scripts/measure.py start                   64 ranks until their first line, beside 64 imports of numpy
ringcast-launch -n 4 docs/scripts/measure.py watching  allreduce with and without the flight recorder, in turn
ringcast-launch -n 4 docs/scripts/measure.py memory    memory of a broadcast of 100 MB beside the user's buffer
ringcast-launch -n 4 docs/scripts/measure.py calls     time of calls with small data on real sockets
ringcast-launch -n 1 docs/scripts/measure.py forms     an allreduce that blocks, by a request, and persistent
ringcast-launch -n 4 docs/scripts/measure.py merge     merge_sorted of 10^7 numbers beside a sort of them by one process
"""

import argparse
import compileall
import os
import platform
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import numpy as np
import zmq

import ringcast
from ringcast import collectives
from ringcast.algorithms import ALGORITHMS, Params
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.stage import Choice, Group
from ringcast.config.worker import WorkerConfig
from ringcast.control import ControlClient, ControlServer, new_key
from ringcast.control.events import Joined
from ringcast.engine.recorder import encoded, mapped
from ringcast.ops import MAX
from ringcast.protocol.compiled import build
from ringcast.protocol.operations import Operation
from ringcast.schedules.blocks import recv_schedule, schedule_tables, send_schedule
from ringcast.transports.simulated import SimulatedWire
from ringcast.wire.call import Call
from ringcast.wire.control_messages import Finished
from ringcast.wire.endpoint_card import EndpointCard

MB = 1_000_000
RANKS = 64  # of a job that starts
SERIES = 100  # calls that are timed together
RUNS = 300  # of a function, by a cluster


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    repeated = (
        rounds,
        schedules,
        growth,
        recorder,
        rendezvous,
        enter,
        job,
        cluster,
        start,
        watching,
        calls,
        forms,
        merge,
    )
    actions = {action.__name__: action for action in (*repeated, merge)}
    parser.add_argument("what", choices=(*actions, "memory"))
    parser.add_argument("--repeat", type=int, default=20, help="how often; but memory is measured once (default 20)")
    options = parser.parse_args()
    if options.what == "memory":
        memory()
    else:
        actions[options.what](options.repeat)


def heading(figure: str) -> None:
    """Print what was measured with; versions that differ give other figures."""
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, pyzmq {zmq.__version__}, "
        f"libzmq {zmq.zmq_version()}, ringcast {ringcast.__version__}, {build()}; "
        f"a call of an empty Python function takes {yardstick():.0f} ns; {figure}"
    )


def yardstick() -> float:
    """Return what an empty Python function costs here and now, in ns: machines that are shared change their speed."""
    calls = 100_000
    return min(timeit.repeat("nothing()", "def nothing(): pass", number=calls, repeat=20)) / calls * 1e9


def least(repeat: int, action: Callable[[], object]) -> float:
    """Return the processor seconds of the fastest of some runs: others on the machine only ever add to it."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def rounds(repeat: int) -> None:
    """Run whole collectives of all ranks in this one thread; the clock of the wire is virtual, the work is real."""
    heading(f"least of {repeat}")
    choices = {"bcast": Choice("circulant", 100), "reduce": Choice("circulant", 100), "allreduce": Choice("census")}
    for p in 8, 64:
        wire, endpoints = simulated_endpoints(p)
        groups = [Group(endpoint, 1, NETWORKS["ipc"]) for endpoint in endpoints]
        for name, choice in choices.items():
            n = choice.nblocks or 1
            number = ALGORITHMS[name][choice.algorithm or ""].rounds(Params(p, nblocks=n))
            seconds = least(repeat, partial(collective, wire, groups, name, choice))
            each = seconds / number / p * 1e6
            print(f"{name} of {n} x 1 byte, p = {p}: {number} rounds, {each:.1f} µs per round and rank")


def collective(wire: SimulatedWire, groups: Sequence[Group], name: str, choice: Choice) -> None:
    """Call one collective with blocks of one byte on all ranks."""
    value = np.ones(choice.nblocks or 1, np.uint8)
    steps = {
        "bcast": lambda group: collectives.broadcast.bcast(group, value if group.rank == 0 else None, 0, choice),
        "reduce": lambda group: collectives.reduce.reduce(group, value, MAX, 0, None, choice),
        "allreduce": lambda group: collectives.reduce.allreduce(group, value, MAX, None, choice),
    }[name]
    drive_together(wire, [group.endpoint for group in groups], [steps(group) for group in groups])


def schedules(repeat: int) -> None:
    """Make schedules anew, that is, without what is kept from one call to the next."""
    heading(f"least of {repeat}")
    for p in 1152, 1_000_000:

        def tables(p: int = p) -> None:
            schedule_tables.cache_clear()
            schedule_tables(p)

        print(f"receive and send schedules of all ranks, p = {p}: {least(repeat, tables) * 1e3:.2f} ms")
    p = 1_000_000
    ranks = range(1, p, p // 1000)

    def pairs() -> None:
        for rank in ranks:
            recv_schedule(p, rank)
            send_schedule(p, rank)

    print(
        f"both schedules of one rank, p = {p}: {least(repeat, pairs) / len(ranks) * 1e6:.1f} µs (mean of {len(ranks)})"
    )


def growth(repeat: int) -> None:
    """Merge the same number of items on more and more ranks, all in this one thread, as `rounds` does."""
    heading(f"least of {repeat}")
    for p in 2, 4, 8, 16, 32:
        wire, endpoints = simulated_endpoints(p)
        groups = [Group(endpoint, 1, NETWORKS["ipc"]) for endpoint in endpoints]
        runs = [np.sort(drawn(r, 1_000_000 // p)) for r in range(p)]
        each = least(repeat, partial(merge_of_all, wire, groups, runs)) / p * 1e3
        log = (p - 1).bit_length()
        print(f"merge_sorted of 10^6 int64, p = {p}: {each:.1f} ms per rank, {each / log:.1f} ms per rank and log2 p")


def rendezvous(repeat: int) -> None:
    """Let all ranks of a job but one join, then that one; all are threads of this process, and so is the server."""
    heading(f"median and largest of {repeat}")
    for kind in "ipc", "tcp":
        with TemporaryDirectory() as folder:
            address = f"ipc://{folder}/control" if kind == "ipc" else "tcp://127.0.0.1:*"
            times = [last_to_join(address, RANKS) * 1e3 for _ in range(repeat)]
        print(f"{RANKS} ranks over {kind}: all have the roster {median(times):.1f} ms after the last one came", end="")
        print(f", {max(times):.1f} ms at most")


def last_to_join(address: str, p: int) -> float:
    """Return the seconds from the last rank's connection and Hello until all ranks have the roster."""
    key, nonce, waiting = new_key(), 1, threading.Event()
    with zmq.Context() as context, ThreadPoolExecutor(p + 1) as pool:
        server = ControlServer(context, address, size=p, nonce=nonce, key=key)

        def serve() -> None:
            joined = 0
            while not server.over:
                server.socket.poll(1000)
                joined += sum(isinstance(notice, Joined) for notice in server.service())
                if joined == p - 1:
                    waiting.set()
            server.close(1.0)

        def join(client: ControlClient) -> float:
            client.join(60.0)
            return time.perf_counter()

        served = pool.submit(serve)
        configs = [WorkerConfig(rank, p, server.address, hosted=True, nonce=nonce, key=key) for rank in range(p)]
        card = EndpointCard("tcp://127.0.0.1:12345")
        clients = [ControlClient(config, card, lambda _: None, context) for config in configs]
        others = [pool.submit(join, client) for client in clients[1:]]
        waiting.wait()
        begin = time.perf_counter()
        end = max(join(clients[0]), *(future.result() for future in others))
        for rank, client in enumerate(clients):
            client.send(Finished(rank, {}))
        list(pool.map(ControlClient.close, clients))
        served.result()
    return end - begin


ALLREDUCE = "import numpy, ringcast; ringcast.init().allreduce(numpy.zeros(10))"
FIRST = """
import time
first = time.time()
import numpy
from_numpy = time.time()
import ringcast
imported = time.time()
comm = ringcast.init()
comm.barrier()
print(first, imported - from_numpy, time.time(), flush=True)
"""


def enter(repeat: int) -> None:
    """Start jobs of four ranks; of each the last rank counts."""
    heading(f"median of {repeat}")
    compileall.compile_dir(Path(ringcast.__file__).parent, quiet=1)  # as an installed package is
    first, imported, past = map(median, zip(*[moments(4) for _ in range(repeat)], strict=True))
    print(
        f"4 ranks: first line after {first:.2f} s, past init and a barrier after {past:.2f} s, "
        f"import ringcast {imported * 1e3:.0f} ms beyond numpy"
    )


def moments(p: int) -> tuple[float, float, float]:
    """Return the seconds of the slowest of p ranks until its first line, for its import, and until past a barrier."""
    with TemporaryDirectory() as folder:
        (script := Path(folder) / "first.py").write_text(FIRST)
        command = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--output", "none", str(script)]
        begin = time.time()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    first, imported, past = zip(*(map(float, line.split()) for line in done.stdout.splitlines()), strict=True)
    return max(first) - begin, max(imported), max(past) - begin


def job(repeat: int) -> None:
    """Take, in turn, the processor time of four imports of numpy, and of whole jobs of four ranks."""
    heading(f"least of {repeat}")
    compileall.compile_dir(Path(ringcast.__file__).parent, quiet=1)  # as an installed package is
    launch = [str(Path(sys.executable).with_name("ringcast-launch")), "-n", "4", "--transport"]
    commands = {"4 imports of numpy": [sys.executable, "-c", "import numpy"]}
    for kind in ("shm", "sockets"):
        commands[f"{kind}, init"] = [*launch, kind, sys.executable, "-c", "import ringcast; ringcast.init()"]
        commands[f"{kind}, allreduce"] = [*launch, kind, sys.executable, "-c", ALLREDUCE]
    times = [[seconds_of(command) for command in commands.values()] for _ in range(repeat)]
    for name, least_time in zip(commands, map(min, zip(*times, strict=True)), strict=True):
        print(f"{name}: {(4 if name.startswith('4') else 1) * least_time * 1e3:.0f} ms")


def seconds_of(command: Sequence[str]) -> float:
    """Return the processor time of a command and of all that it waits for; each process has one thread for numpy."""
    before = getrusage(RUSAGE_CHILDREN)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cluster(repeat: int) -> None:
    """Let clusters run an empty function, again and again; the second run of each is printed by itself too."""
    heading(f"medians of {repeat} clusters with {RUNS} runs each")
    figures = []
    for _ in range(repeat):
        with ringcast.cluster(4) as ranks:
            times = [timeit.timeit(lambda: ranks.run(lambda _: None), number=1) * 1e3 for _ in range(RUNS)]
        figures.append((median(times), quantiles(times, n=10)[-1], times[1]))
    middle, high, second = map(median, zip(*figures, strict=True))
    print(f"run of an empty function on 4 ranks: median {middle:.1f} ms, 90 % within {high:.1f} ms, ", end="")
    print(f"the second one {second:.1f} ms; load {os.getloadavg()[0]:.1f}")


def start(repeat: int) -> None:
    """Start, in turn, processes that only import numpy and a job; wait for the last end and for the last line."""
    heading(f"median of {repeat}")
    compileall.compile_dir(Path(ringcast.__file__).parent, quiet=1)  # as an installed package is, and numpy
    bare, job = zip(*[(imports(RANKS), first_lines(RANKS)) for _ in range(repeat)], strict=True)
    times = median(mine / others for mine, others in zip(job, bare, strict=True))
    print(f"{RANKS} imports of numpy {median(bare):.1f} s, {RANKS} ranks {median(job):.1f} s, {times:.1f} times that")


def imports(p: int) -> float:
    """Return the seconds that p processes take which import numpy."""
    begin = time.perf_counter()
    for process in [subprocess.Popen([sys.executable, "-c", "import numpy"]) for _ in range(p)]:
        process.wait()
    return time.perf_counter() - begin


def first_lines(p: int) -> float:
    """Return the seconds until each of p ranks has printed a line after a barrier."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / "hello.py"
        script.write_text("import ringcast\ncomm = ringcast.init()\ncomm.barrier()\nprint('here')\n")
        command = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--transport", "tcp", str(script)]
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as launcher:
            assert launcher.stdout is not None
            for _ in range(p):
                assert b"here" in launcher.stdout.readline()
            return time.perf_counter() - begin


def recorder(repeat: int) -> None:
    """Print how long it takes to record the begin and the end of an operation, into a mapped file."""
    heading("the shortest of the repetitions counts")
    call = Call("allreduce", "float64", (1000,), "sum", None, "doubling", 1)
    op, known = Operation(1, 17, call, False, 8, (__file__, 1)), encoded(call)
    op.rounds = 4
    with TemporaryDirectory() as folder:
        file = mapped(folder, 0, 1)

        def record() -> None:
            file.begin(op, known)
            file.done(op)

        print(f"{min(timeit.repeat(record, number=10_000, repeat=repeat)) / 10_000 * 1e6:.2f} µs for an operation")
        file.close()


class _Nothing:
    """Stands in for a rank's recorder."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_: None


def processor_time(name: str) -> float:
    """Return the seconds of processor time that a thread of this process has used."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9


def watching(repeat: int) -> None:
    """Time pairs of series of calls, one with the flight recorder and one without; and what the signs of life take."""
    with ringcast.init() as comm:
        endpoint = comm._group.endpoint
        recorder, start, used = endpoint.recorder, time.perf_counter(), processor_time("ringcast-control")
        if comm.rank == 0:
            heading(f"median of {repeat} pairs of {SERIES} calls on {comm.size} ranks")
        for nbytes in 1000, MB:
            value, times = np.ones(nbytes // 8), {True: [], False: []}
            for turn in range(2 * repeat):
                on = turn % 4 in (0, 3)
                endpoint.recorder = recorder if on else _Nothing()
                times[on].append(series(comm, lambda value=value: comm.allreduce(value)))
            ratio = median(on / off for on, off in zip(times[True], times[False], strict=True))
            if comm.rank == 0:
                print(f"allreduce of {nbytes} bytes: {median(times[True]) * 1e6:.0f} µs, {ratio:.3f} of that without")
        endpoint.recorder = recorder
        share = (processor_time("ringcast-control") - used) / (time.perf_counter() - start)
        if comm.rank == 0:
            print(f"signs of life: {100 * share:.3f} % of a processor")


def merge_of_all(wire: SimulatedWire, groups: Sequence[Group], runs: Sequence[np.ndarray]) -> None:
    """Call merge_sorted on all ranks."""
    steps = [
        collectives.merge.merge_sorted(group, run, None, Choice()) for group, run in zip(groups, runs, strict=True)
    ]
    drive_together(wire, [group.endpoint for group in groups], steps)


def drawn(rank: int, length: int) -> np.ndarray:
    """Return the numbers of a rank, in random order."""
    return np.random.default_rng(rank).integers(0, 1 << 62, length)


def merge(repeat: int) -> None:
    """Take turns: rank 0 sorts all numbers while the others wait; all ranks merge what each has sorted before."""
    with ringcast.init() as comm:
        numbers = 10_000_000 // comm.size
        run = np.sort(drawn(comm.rank, numbers))
        everything = np.concatenate([drawn(r, numbers) for r in range(comm.size)] if comm.rank == 0 else [run[:0]])
        sort, together = partial(np.sort, everything, kind="stable"), partial(comm.merge_sorted, run)
        merged = together()  # the first call makes connections
        assert comm.rank > 0 or np.array_equal(merged, sort())
        if comm.rank == 0:
            heading(f"medians of {repeat} pairs on {comm.size} ranks")
        pairs = [(slowest(comm, sort), slowest(comm, together)) for _ in range(repeat)]
        a, b, ratio = (median(times) for times in zip(*((a, b, b / a) for a, b in pairs), strict=True))
        if comm.rank == 0:
            print(f"{len(merged)} int64: np.sort by one rank {a:.2f} s, merge_sorted {b:.2f} s, {ratio:.2f} times that")


def slowest(comm: ringcast.Communicator, action: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call on the rank that was slowest."""
    comm.barrier()
    start = time.perf_counter()
    action()
    return float(comm.allreduce(time.perf_counter() - start, max))


def calls(repeat: int) -> None:
    """Time series of equal calls with small data; the slowest rank counts, and the least of the series."""
    with ringcast.init() as comm:
        one, some, counts = np.ones(1), np.ones(comm.rank + 1), range(1, comm.size + 1)
        actions: dict[str, Callable[[], object]] = {
            "barrier": comm.barrier,
            "allreduce of 8 bytes": lambda: comm.allreduce(one),
            "allgather of 8 bytes": lambda: comm.allgather(one),
            "allgatherv of 8 (r + 1) bytes, counts given": lambda: comm.allgatherv(some, counts),
            "allgatherv of 8 (r + 1) bytes, counts left out": lambda: comm.allgatherv(some),
        }
        if comm.rank == 0:
            heading(f"least of {repeat} series of {SERIES} calls on {comm.size} ranks")
        for name, action in actions.items():
            series(comm, action)  # the first one makes connections and schedules
            seconds = min(series(comm, action) for _ in range(repeat))
            if comm.rank == 0:
                print(f"{name}: {seconds * 1e6:.0f} µs per call")


def forms(repeat: int) -> None:
    """Time the forms of one small call; the least of the series counts."""
    with ringcast.init() as comm:
        value = np.ones(2)
        persistent = comm.allreduce_init(value)

        def start_and_wait() -> None:
            persistent.start()
            persistent.wait()

        def ping_pong() -> None:
            comm.sendrecv(value, 1 - comm.rank, 1 - comm.rank)

        actions: dict[str, Callable[[], object]] = {
            "allreduce": lambda: comm.allreduce(value),
            "iallreduce and wait": lambda: comm.iallreduce(value).wait(),
            "allreduce_init, start and wait": start_and_wait,
        }
        if comm.size == 2:
            actions["sendrecv"] = ping_pong
        if comm.rank == 0:
            heading(f"least of {repeat} series of {SERIES} calls on {comm.size} ranks")
        for name, action in actions.items():
            series(comm, action)
            seconds = min(series(comm, action) for _ in range(repeat))
            if comm.rank == 0:
                print(f"{name}: {seconds * 1e6:.1f} µs")


def series(comm: ringcast.Communicator, action: Callable[[], object]) -> float:
    """Return the wall-clock seconds of one call in a series, on the rank that was slowest."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(SERIES):
        action()
    return float(comm.allreduce(time.perf_counter() - start, max)) / SERIES


def memory() -> None:
    """Move 100 MB by several collectives, into buffers that are there, and print what else that took."""
    with ringcast.init() as comm:
        p, r = comm.size, comm.rank
        part = 100 * MB // p // 8
        vector, whole, mine = np.ones(part * p), np.ones((p, part)), np.ones(part)
        counts = [part * p - (p - 1) * 1000, *(1000,) * (p - 1)]
        rows = np.ones(counts[r])
        line = whole.reshape(-1)
        actions: dict[str, Callable[[], object]] = {
            "bcast": lambda: comm.bcast(vector),
            "allgather": lambda: comm.allgather(mine, out=whole),
            "allgatherv": lambda: comm.allgatherv(rows, counts, out=line),
            "allreduce into another buffer": lambda: comm.allreduce(vector, out=line),
            "allreduce in place": lambda: comm.allreduce(vector, out=vector),
            "reduce": lambda: comm.reduce(vector, out=line if r == 0 else None),
            "reduce_scatter": lambda: comm.reduce_scatter(vector, out=mine),
        }
        for name, action in actions.items():
            comm.barrier()
            figures = comm.gather(peak(action) / MB)
            if figures:
                print(f"{name}: {figures[0]:.1f} MB on rank 0, at most {max(figures[1:], default=0):.1f} MB on others")


def peak(action: Callable[[], object]) -> int:
    """Return by how many bytes the resident memory of this process is larger at its peak than before."""
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    action()
    return status("VmHWM") - before


def status(field: str) -> int:
    """Return a figure of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field + ":")).split()[1]) * 1024


if __name__ == "__main__":
    main()

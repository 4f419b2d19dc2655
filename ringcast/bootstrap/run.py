"""`ringcast.run`: a function on n ranks, as threads of this process or as processes of this machine."""

from __future__ import annotations

import itertools
import operator
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar, overload

import cloudpickle

from ringcast._util.safe_text import is_a, safe_text
from ringcast._util.streams import flush, write_text
from ringcast.bootstrap.in_process import LocalControl, abort, thread_endpoints
from ringcast.bootstrap.launched import failure, note_of, read_report
from ringcast.bootstrap.time_limit import GRACE, deadline, left
from ringcast.bootstrap.world import adopt, thread_group
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import JobAborted, PeerFailed, Revoked, RunFailed, RunTimeout
from ringcast.wire.error_text import in_a_line, text_of

Returned = TypeVar("Returned")
CONSEQUENCES = (PeerFailed, Revoked, JobAborted)  # errors that another rank's error brings about
SHARED = "ringcast-launch: the ranks share the cores: "  # how a line of the launcher begins, …
_seen: set[str] = set()  # … and the lines that were shown: a session shows each once
TIMED_OUT = 124  # the launcher's exit code
TAIL = 60  # lines of output that an error quotes at most


@overload
def run(
    fn: Callable[[Communicator], Returned],
    n: int,
    *,
    backend: str = "processes",
    timeout: float | None = None,
    profile: str | os.PathLike[str] = "",
) -> list[Returned]: ...
@overload
def run(
    fn: Callable[..., Returned],
    n: int,
    *,
    args: Sequence[Any],
    backend: str = "processes",
    timeout: float | None = None,
    profile: str | os.PathLike[str] = "",
) -> list[Returned]: ...
def run(
    fn: Callable[..., Any],
    n: int,
    *,
    args: Sequence[Any] = (),
    backend: str = "processes",
    timeout: float | None = None,
    profile: str | os.PathLike[str] = "",
) -> list[Any]:
    """Call `fn(comm, *args)` on n ranks of this machine and return their results, by rank.

    Cost: "processes" starts n interpreters and pickles function, arguments and results; "threads" starts n threads,
    which share this process's objects.

    Args:
        fn: any function that cloudpickle can pickle, also a lambda or one defined in a notebook.
        n: number of ranks, 1 or more.
        args: further arguments, the same on all ranks.
        backend: "processes" starts `ringcast-launch` on this machine; "threads" uses threads of this process (one
            interpreter lock for all: for notebooks and tests).
        timeout: seconds, above 0, that this may take as a whole, with the start of the ranks; None: no limit.
        profile: a file, *.html or *.json, for a report on where the time went, or "-" for a table on standard error;
            "": none (docs/operate/profile.md).

    Returns:
        A list of the results of `fn`, by rank.

    Raises:
        RunFailed: some rank raised or died; names the first one, with its traceback. A note has the known facts on the
            others, which standard error then does not show. Or a rank caught an error of communication, and no shrink
            or agree followed.
        RunTimeout: it took longer than `timeout`, which is a RunFailed too. Communication has ended then, and so have
            processes; nothing ends a thread that does not communicate: the error names the ones that still run.
        OSError: output of the ranks cannot be written to this process's own streams.
        ValueError: n, backend, timeout or profile make no sense.
        TypeError: fn is no function, or n no integer.

    >>> ringcast.run(lambda comm, x: comm.allreduce(x + comm.rank), 3, args=(10,), backend="threads")
    [33, 33, 33]
    """
    if not callable(fn):
        raise TypeError(f"fn={safe_text(fn)}: expected a function, before the number of ranks")
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"n={n}: expected 1 rank or more")
    until, profile = deadline(timeout), os.fspath(profile)
    if profile:
        from ringcast.bootstrap.profile import check  # few runs are profiled

        check(profile)
    if backend == "threads":
        return _run_threads(fn, n, args, until, timeout, profile)
    if backend == "processes":
        return _run_processes(fn, n, args, None if until is None else timeout, profile)
    raise ValueError(f"backend={safe_text(backend)}: expected 'processes' or 'threads'")


def _run_threads(
    fn: Callable[..., Any], n: int, args: Sequence[Any], until: float | None, timeout: float | None, profile: str
) -> list[Any]:
    results: list[Any] = [None] * n
    failures: list[tuple[int, BaseException]] = []  # in the order in which they happened
    endpoints = thread_endpoints(n)
    groups = [thread_group(endpoint) for endpoint in endpoints]
    parts: dict[int, Any] = {}  # of the profile, by rank

    def work(group: Group) -> None:
        comm, endpoint = Communicator(group), group.endpoint
        adopt(comm)
        if profile:
            from ringcast.profiling.attach import attach  # few runs are profiled

            attach(group, partial(parts.__setitem__, group.rank))
        try:
            results[comm.rank] = fn(comm, *args)
            comm.finalize()  # may notice that a call was not the same on all ranks
        except BaseException as error:  # of the program's function: the caller raises it, not this thread
            failures.append((comm.rank, error))
            _abort(endpoint, f"rank {endpoint.rank} raised {in_a_line(error)}")
        finally:
            comm.finalize()

    # Threads that a time limit leaves running must not keep the interpreter from its end.
    threads = [threading.Thread(target=work, args=(g,), name=f"ringcast-rank-{g.rank}", daemon=True) for g in groups]
    try:
        for thread in threads:
            thread.start()
        late = _running(threads, until)
        if late and timeout is not None:
            abort(endpoints, f"the run did not finish within {timeout:g} s")
            running = _running(threads, time.monotonic() + GRACE)
            traces = [text_of(error) for rank, error in failures if rank in late]
            raise RunTimeout(late, timeout, traces[0] if traces else "", running)
    except RunTimeout as overdue:
        _write_profile(profile, parts, n, in_a_line(overdue).partition("\n")[0])
        raise
    except BaseException as interruption:
        abort(endpoints, f"the calling thread was interrupted by {in_a_line(interruption)}")
        _running([thread for thread in threads if thread.is_alive()], time.monotonic() + GRACE)
        _write_profile(profile, parts, n, in_a_line(interruption))
        raise
    _write_profile(profile, parts, n, in_a_line(_first_cause(failures)[1]) if failures else "")
    if failures:
        rank, error = _first_cause(failures)
        raise RunFailed(rank, in_a_line(error), text_of(error)) from error
    _check_answers(endpoints)
    _check_ends(endpoints)
    return results


def _write_profile(path: str, parts: Mapping[int, Any], size: int, failure: str) -> None:
    """Write the profile, if one is wanted and a rank has a part.

    Raises:
        OSError: it cannot be written; not after a failure, which the caller has to know of.
    """
    found = [*parts.values()]  # a rank that still runs may add one
    if not path or not found:
        return
    from ringcast.bootstrap.profile import report_of
    from ringcast.profiling.files import publish

    try:
        publish(path, report_of(found, size, failure))
    except OSError:
        if not failure:
            raise


def _running(threads: Sequence[threading.Thread], until: float | None) -> tuple[int, ...]:
    """Wait for the ends of all threads, until a time; return the ranks whose threads still run then."""
    for thread in threads:
        thread.join(left(until))
    return tuple(rank for rank, thread in enumerate(threads) if thread.is_alive())


def _check_answers(endpoints: Sequence[Endpoint]) -> None:
    """Raise RunFailed for an error that a rank caught and did not answer by shrink or agree; causes come first."""
    found = [(e.rank, error) for e in endpoints if (error := e.unanswered.first) is not None]
    for rank, error in sorted(found, key=lambda one: one[1].follows):
        raise RunFailed(rank, str(error))


def _check_ends(endpoints: Sequence[Endpoint]) -> None:
    """Raise RunFailed for a message that no rank received; after a caught error, messages under way are lost."""
    protocols = [endpoint.protocol for endpoint in endpoints]
    if any(protocol.gave_up for protocol in protocols):
        return
    for (a, source), (b, sink) in itertools.permutations(enumerate(protocols), 2):
        if source.posted[b] > sink.matched[a]:
            raise RunFailed(b, f"it finished without taking a message of rank {a}")


def _abort(endpoint: Endpoint, cause: str) -> None:
    assert isinstance(endpoint.control, LocalControl)
    endpoint.control.abort(cause)


def _first_cause(failures: Sequence[tuple[int, BaseException]]) -> tuple[int, BaseException]:
    return next((f for f in failures if not is_a(f[1], CONSEQUENCES)), failures[0])


def _run_processes(
    fn: Callable[..., Any], n: int, args: Sequence[Any], timeout: float | None, profile: str
) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="ringcast-run-") as name:  # mode 0700: pickles are safe in there
        folder = Path(name)
        (folder / "call").write_bytes(pickle.dumps(sys.path) + cloudpickle.dumps((fn, args)))
        report, last_words = folder / "report", folder / "last-words"
        # -P: files of the working directory shadow none of our modules, nor Python's own.
        command = [sys.executable, "-P", "-m", "ringcast_launcher.for_program", str(last_words)]
        command += ["-n", str(n), "--json-report", str(report)]
        command += ["--timeout", str(timeout)] if timeout is not None else []
        command += [f"--profile={profile}"] if profile else []
        command += ["python", "-P", "-m", "ringcast.bootstrap.worker", name]
        tail: deque[str] = deque(maxlen=TAIL)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as launcher:
            assert launcher.stdout is not None
            assert launcher.stderr is not None
            # Through Python's own streams, so that a notebook shows it.
            lost: list[OSError | ValueError] = []
            errors = threading.Thread(
                target=_copy_all, args=(_unseen(launcher.stderr), sys.stderr, tail, lost), name="ringcast-run-stderr"
            )
            errors.start()
            try:
                _copy(launcher.stdout, sys.stdout, tail)
            except BaseException:  # an interrupt, for example
                launcher.terminate()  # it ends the ranks
                for _ in launcher.stdout:  # it may have more to say than the pipe holds
                    pass
                launcher.wait()
                errors.join()
                _copy_all(_lines_of(last_words), sys.stderr, tail, lost)  # the interrupt itself shows none of that
                raise
            finally:
                errors.join()
        # Where our process ignores SIGCHLD, the exit code of a child is lost: the launcher's report counts.
        told = read_report(report.read_bytes() if report.exists() else b"")
        results = [folder / f"result-{rank}" for rank in range(n)]
        words = _lines_of(last_words)
        output = "".join([*tail, *words][-max(TAIL, len(words)) :])
        if code := launcher.returncode or told["exit_code"]:
            if timeout is not None and code == TIMED_OUT and told["rank"] is None:
                late = tuple(rank for rank, file in enumerate(results) if not file.exists())
                raise RunTimeout(late or tuple(range(n)), timeout, output)
            error = failure(output, code, told)
            if note := note_of(words, error, output):
                error.add_note(note)
            raise error
        if lost:
            raise lost[0]
        for rank, file in enumerate(results):
            if not file.exists():
                raise RunFailed(rank, "it ended without a result", output)
        return [pickle.loads(file.read_bytes()) for file in results]


def _unseen(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without the ones on shared cores that an earlier run of this process has shown."""
    for line in lines:
        if not line.startswith(SHARED):
            yield line
        elif line not in _seen:
            _seen.add(line)
            yield line


def _lines_of(last_words: Path) -> list[str]:
    """Return the launcher's last lines; none if it was killed before."""
    try:
        return last_words.read_text("utf-8", "replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _copy(source: Iterable[str], sink: TextIO | None, tail: deque[str]) -> None:
    """Copy to one of Python's streams, which is None where the process was started without: print does nothing then."""
    for line in source:
        if sink is not None:
            write_text(sink, line)
        tail.append(line)
    if sink is not None:
        flush(sink)


def _copy_all(source: Iterable[str], sink: TextIO | None, tail: deque[str], lost: list[OSError | ValueError]) -> None:
    """Copy while the sink can be written; then read the rest, so that the source never has to wait."""
    try:
        _copy(source, sink, tail)
    except (OSError, ValueError) as error:  # a ValueError if the program has closed the stream
        lost.append(error)
        tail.extend(source)

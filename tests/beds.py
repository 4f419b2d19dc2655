"""Emulated hosts for tests, and programs that run on all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringcast.bench.bed import Bed, BedError, parse
from ringcast.bench.workers import start_workers

PROGRAMS = Path(__file__).parent / "on_hosts"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def make_bed(text: str) -> Bed:
    """Return a bed such as "4x100mbit"; skip the test where there can be none, but fail it in CI."""
    try:
        return Bed(*parse(text))
    except BedError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def run_ranks(bed: Bed, program: str, *arguments: str, hosts: Sequence[int] = (), timeout: float = 60.0) -> list[str]:
    """Run a program of `on_hosts` as one job, a rank on every host or on those named; return what each rank printed.

    A rank that fails makes all of them fail, with what they printed.
    """
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return outputs(start_workers(bed, command, ENVIRONMENT, hosts, **files), timeout)


def outputs(processes: list[subprocess.Popen[str]], timeout: float = 60.0) -> list[str]:
    """Wait for processes that must succeed and return what each printed."""
    deadline = time.monotonic() + timeout
    try:
        printed = [process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        said = [process.communicate()[0] for process in processes]
        raise AssertionError("\n".join([f"not finished after {timeout:g} s", *said])) from None
    codes = [process.returncode for process in processes]
    assert not any(codes), "\n".join([f"exit codes {codes}", *printed])
    return printed

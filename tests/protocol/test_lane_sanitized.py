"""The tests of the compiled lane, on one that sanitizers watch: of addresses and undefined behaviour, and of threads.

Python itself is as it is: they see what the lane does, and locks, threads and memory of the whole process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support import needs
from support.lane_trees import HERE, build, run, run_tests

pytestmark = [needs.shared_memory, pytest.mark.long]

FLAGS = {
    "address": "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all",
    "thread": "-O1 -g -fsanitize=thread -Wno-tsan",  # which warns that it does not know fences
}
LIBRARIES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
OPTIONS = {
    "PYTHONMALLOC": "malloc",  # else Python's own pools hide what lies beyond an object
    "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves objects at its end
    "TSAN_OPTIONS": "exitcode=66",
}


@pytest.mark.parametrize("sanitizer", FLAGS)
def test_a_sanitizer_finds_nothing(sanitizer: str, tmp_path: Path) -> None:
    needs.compiler()
    found = [needs.runtime(name) for name in LIBRARIES[sanitizer]]
    build(tmp_path, CFLAGS=FLAGS[sanitizer])
    watched = {**OPTIONS, "LD_PRELOAD": ":".join(found)}
    where = run(tmp_path, HERE, "-c", "from ringcast.protocol import _lane; print(_lane.__file__)", **watched)
    assert Path(where.strip()).parent == tmp_path / "ringcast" / "protocol"
    run_tests(tmp_path, HERE, "-k", "compiled or not python", **watched)

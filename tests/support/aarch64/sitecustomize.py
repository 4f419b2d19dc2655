"""Let ranks of one process share memory on aarch64, for the tests of the compiled lane there; see `support.emulated`.

ringcast does it on x86-64 only, as the Python parts of the ring rely on its order of writes. The processor below qemu
has that order, so these tests show what the compiled part computes, and nothing of the order of memory on aarch64.
"""

import os
import sys

from ringcast.procs import libc

os.environ.pop("LD_PRELOAD", None)  # it is not for programs of this machine
sys.executable = os.path.join(os.path.dirname(sys.prefix), "python")  # by which this process starts others
libc._FUTEX = 98  # the number of the system call
libc.reason_not_futexes = lambda: ""

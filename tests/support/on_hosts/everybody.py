"""Every rank sends a row of its own straight to every other, so that each host talks to all others."""

import sys

import numpy as np

import ringcast

with ringcast.init() as comm:
    items = int(sys.argv[1])
    mine = np.repeat(np.arange(comm.size) * 1000 + comm.rank, items).reshape(comm.size, items)
    theirs = comm.alltoallv(mine, [1] * comm.size, [1] * comm.size)
    np.testing.assert_array_equal(theirs[:, 0], np.arange(comm.size) + 1000 * comm.rank)
    assert (theirs == theirs[:, :1]).all()

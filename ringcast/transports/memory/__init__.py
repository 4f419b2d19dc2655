"""Move messages between the ranks of one host by shared memory: the transport, its segments and their rings."""

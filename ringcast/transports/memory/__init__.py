"""Shared memory between the ranks of one host: the transport, its segments and their rings."""

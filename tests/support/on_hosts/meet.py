"""Ranks meet, add up their numbers, and say where they listen."""

import psutil

import ringcast

comm = ringcast.init()
total = comm.allreduce(comm.rank)
listens = [c.laddr for c in psutil.Process().net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
# A thread may be asking the kernel, over a connection to itself, whether it counts bytes (`ringcast.net.strangers`).
listens = [place for place in listens if place[0] != "127.0.0.1"] or listens
print(total, *(f"{host} {port}" for host, port in listens), flush=True)
comm.barrier()

"""Tasks of very different lengths, which rank 0 hands out to free workers; no task is lost when a worker dies.

    ringcast-launch -n 4 --on-failure continue examples/tasks.py --lose 2

Each task is to count the primes in an interval. Rank 0 sends a task to each worker and then waits for a result of any
of them, whose sender gets the next task. A worker that `--lose` names kills itself in the middle of its second task.
The others learn of it, shrink the communicator to the ranks that live, and rank 0, which has all results so far, hands
out the tasks without a result.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import numpy as np

import ringcast

TASKS, WIDTH = 60, 2000  # the last intervals take longest, as their numbers are largest
TASK, RESULT = 1, 2  # tags


def main() -> None:
    parser = argparse.ArgumentParser(description="tasks for free workers")
    parser.add_argument("--lose", type=int, action="append", default=[], metavar="RANK", help="a worker that dies")
    lose = parser.parse_args().lose
    world = ringcast.init()
    comm, results = work_together(world, world.rank in lose)
    if comm.rank == 0:
        if sum(results.values()) != sum(sieve(TASKS * WIDTH)):
            sys.exit("these are not as many primes as a sieve finds")
        print(f"{world.size} ranks began, {comm.size} finished {len(results)} tasks: {sum(results.values())} primes")


def work_together(comm: ringcast.Communicator, dies: bool) -> tuple[ringcast.Communicator, dict[int, int]]:
    """Return the ranks that live to the end, and at rank 0 the results by task."""
    results: dict[int, int] = {}
    while True:
        try:
            if comm.rank == 0:
                hand_out(comm, results)
            else:
                work(comm, dies)
            comm.agree()  # nobody leaves while another one still needs it
            return comm, results
        except (ringcast.PeerFailed, ringcast.Revoked):
            comm.revoke()
            comm = comm.shrink()


def hand_out(comm: ringcast.Communicator, results: dict[int, int]) -> None:
    """Have all tasks done that have no result, one at a time by each of the other ranks; then tell them to stop."""
    left = [task for task in range(TASKS) if task not in results]
    idle = [*range(1, comm.size)]
    while idle or len(results) < TASKS:
        while idle and left:
            comm.send(left.pop(), idle.pop(), TASK)
        if len(results) == TASKS or comm.size == 1:
            break
        status = ringcast.Status()
        task, count = comm.recv(ringcast.ANY_SOURCE, RESULT, status=status)
        results[task] = count
        idle.append(status.source)
    for task in left if comm.size == 1 else ():
        results[task] = primes_in(task)
    for worker in range(1, comm.size):
        comm.send(None, worker, TASK)


def work(comm: ringcast.Communicator, dies: bool) -> None:
    """Do the tasks that rank 0 sends, until it sends None."""
    done = 0
    while (task := comm.recv(0, TASK)) is not None:
        if dies and done == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.send((task, primes_in(task)), 0, RESULT)
        done += 1


def primes_in(task: int) -> int:
    """Return how many primes an interval has, by trial division."""
    numbers = np.arange(max(2, task * WIDTH), (task + 1) * WIDTH)
    prime = np.ones(len(numbers), bool)
    for divisor in range(2, int((task + 1) ** 0.5 * WIDTH**0.5) + 1):
        prime &= (numbers % divisor != 0) | (numbers == divisor)
    return int(prime.sum())


def sieve(end: int) -> list[bool]:
    """Return for each number below `end` whether it is a prime."""
    prime = [False, False] + [True] * (end - 2)
    for n in range(2, int(end**0.5) + 1):
        if prime[n]:
            prime[n * n :: n] = [False] * len(prime[n * n :: n])
    return prime


if __name__ == "__main__":
    main()

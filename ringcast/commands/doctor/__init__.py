"""Implement `ringcast doctor`: check whether a job would run here, or on a list of hosts, and say how to mend faults.

A check is a function that reads facts (effects) and one that judges them (pure); it gives findings. `examine` makes the
findings of this machine. For several hosts, one doctor starts a doctor on each of them, over ssh. This one examines its
machine and then answers questions on its standard input (`probe`): its time, and whether it reaches the next host.
"""

"""`ringcast doctor`: looks whether a job would run here, or on a list of hosts, and says how to mend what is not so.

A check is a function that reads (effects) and one that judges what was read (pure), and gives findings. `examine` makes
those of this machine. For several hosts one doctor starts one on each of them, over ssh, which examines its machine and
then answers questions on its standard input (`probe`): what time it is, and whether it reaches the next host.
"""

"""Run a job with one launcher per node (`--nnodes`), each started from outside: they meet, and node 0 leads."""

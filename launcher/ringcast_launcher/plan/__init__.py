"""Plan a job: hosts, ranks, environment and commands, before anything is started."""

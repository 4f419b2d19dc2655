"""Implement the subcommands of `ringcast`, and the modules that only they need."""

"""The subcommands of `ringcast`, and what only they need."""

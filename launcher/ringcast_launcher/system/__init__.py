"""Use the operating system for the launcher: children, signals, the watchdog, the job's directory."""

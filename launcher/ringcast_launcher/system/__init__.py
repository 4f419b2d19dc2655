"""The launcher and the operating system: children, signals, the watchdog, the job's directory."""

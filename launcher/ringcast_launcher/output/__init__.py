"""Output of the launcher: the streams of the ranks, and the status line."""

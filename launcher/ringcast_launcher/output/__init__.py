"""What the launcher prints: output of ranks, and the status line."""

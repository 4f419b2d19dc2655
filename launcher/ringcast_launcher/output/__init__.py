"""Write the launcher's output: the streams of the ranks, and the status line."""

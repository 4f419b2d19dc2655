"""The progress engine of a rank: it runs schedules on memory, sends and receives, and waits."""

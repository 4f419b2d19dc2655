"""Messages between two ranks, of objects and of buffers."""

"""One process manager per host: in the launcher's process on its own host, an agent elsewhere."""

"""Manage the processes of each host: in the launcher's process on its own host, by an agent elsewhere."""

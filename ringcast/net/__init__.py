"""Addresses, ports, keys, admission of connections, and the state of links."""

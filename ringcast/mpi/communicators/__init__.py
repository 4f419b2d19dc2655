"""Communicators, their groups and topologies: the calls that make them, and those that they have."""

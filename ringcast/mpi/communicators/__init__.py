"""Communicators, their groups and topologies: calls that make them, and their own calls."""

"""Ranks inside programs that others have started: they meet through a store, and communicate by the program's calls."""

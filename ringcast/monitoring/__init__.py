"""Monitoring of ranks: flight recorder, live state, traces."""

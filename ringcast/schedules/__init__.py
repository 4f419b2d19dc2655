"""Schedules of the collectives, one family per file."""

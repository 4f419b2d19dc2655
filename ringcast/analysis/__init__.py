"""Schedules judged without running them: verification, simulation, bounds, tables and diagrams."""

"""Decide about a job while it runs and at its end, without processes or clocks."""

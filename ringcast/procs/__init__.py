"""Inspect and control processes: process trees, liveness, children of a rank; no third-party package is needed."""

"""Adapt the measured libraries to one small interface; the peers' files run without ringcast."""

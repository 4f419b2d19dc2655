"""Collectives on buffers and on objects, within a group and between two."""

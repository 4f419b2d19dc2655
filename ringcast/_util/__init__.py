"""Helpers that any other package may use: files, streams, sizes, texts and dataclasses."""

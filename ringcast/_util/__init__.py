"""Help any other package: files, streams, sizes, texts and dataclasses."""

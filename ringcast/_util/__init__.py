"""Files, streams, sizes and dataclasses: what every other package may use and what is about nothing in particular."""

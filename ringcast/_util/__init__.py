"""Files, streams and sizes: what every other package may use and what is about nothing in particular."""

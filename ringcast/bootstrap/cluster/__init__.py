"""`ringcast.cluster`: ranks that live between calls, each with communicators of its own."""

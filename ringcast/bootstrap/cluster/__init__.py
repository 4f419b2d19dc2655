"""`ringcast.cluster`: ranks that live between calls, each of which has communicators of its own."""

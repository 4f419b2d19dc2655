"""`ringcast.cluster`: ranks that live on between calls; each call gets communicators of its own."""

"""Implement `ringcast cp`, which copies files: one rank on this host reads them, one on each other host writes them."""

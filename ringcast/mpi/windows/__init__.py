"""Windows: memory that the ranks of a host share."""

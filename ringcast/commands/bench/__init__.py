"""Implement `ringcast bench`: measure the collectives, against the limit of the wire and against other libraries."""

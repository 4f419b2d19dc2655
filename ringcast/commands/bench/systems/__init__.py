"""The libraries that are measured, each behind the same small interface; the peers' files run without ringcast."""

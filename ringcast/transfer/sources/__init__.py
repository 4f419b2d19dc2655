"""Files that several hosts read parts of: on disks, on http(s) servers, and wherever fsspec reads."""

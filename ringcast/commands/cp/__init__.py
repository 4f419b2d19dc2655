"""The command `ringcast cp`: one rank on this host, which has the files, and one on each host that gets them."""

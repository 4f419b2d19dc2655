"""Jobs whose hosts are started by others, one launcher on each: they meet, and one of them leads."""

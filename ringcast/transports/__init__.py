"""Ways to move frames between ranks."""

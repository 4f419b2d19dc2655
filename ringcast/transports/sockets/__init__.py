"""Move messages between ranks by stream sockets: listening, greeting, and the two directions of a connection."""

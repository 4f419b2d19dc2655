"""Stream sockets between ranks: the transport, how it listens and greets, and the two directions of a connection."""

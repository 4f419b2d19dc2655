"""The protocol between two ranks, without sockets or clocks: matching, flow control, failures."""

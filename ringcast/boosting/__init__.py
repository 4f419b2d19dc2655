"""Training of gradient-boosted trees by other libraries, over a communicator."""

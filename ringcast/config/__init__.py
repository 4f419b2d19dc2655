"""Settings from the environment, checked."""

"""Read and check settings from the environment."""

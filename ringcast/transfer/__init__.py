"""Files from one rank to all others: pure decisions (manifest, layout) apart from effects (source, destination)."""

"""Copy files from one rank to all others; decisions (manifest, layout) apart from effects (source, destination)."""

"""Linux processes: trees of them, liveness, children of a rank. Nothing here needs a third-party package."""

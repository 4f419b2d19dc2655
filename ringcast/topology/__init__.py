"""Ranks and their neighbours, as a user sees them: any graph, and Cartesian grids."""

"""What ranks did and what they are doing: flight recorder, live state, traces."""

"""A rack of GB10 nodes and its CRS812 switch, described in one file and kept as described."""

"""A rack of GB10 nodes and its switch, described in one file and kept as described."""

"""The disk image of a factory-fresh node, built once from its recipe and kept in the cache."""

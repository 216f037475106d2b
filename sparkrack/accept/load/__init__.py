"""Observations of claims that need load: parts of one run, each of which settles the claims that name it."""

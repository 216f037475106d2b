"""Served units from the operator's machine: questions to their keepers, and their state as data."""

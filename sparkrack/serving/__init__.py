"""Served units from the operator's machine: questions to their coordinators, and their state as data."""

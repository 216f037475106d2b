"""Probes of hosts, and the parsers of their answers."""

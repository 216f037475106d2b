"""Roles of the nodes, one folder each: `desired` has the desired state, `apply` brings a node there, `verify` checks
it.
"""

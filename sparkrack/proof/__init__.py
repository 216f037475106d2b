"""Proof: what `verify.py` of roles and switch stand on. It shares nothing with what makes changes."""

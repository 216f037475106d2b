"""Verification: the base of `verify.py` of roles and switch. It shares nothing with the code that makes changes."""

"""Drives pyinfra: the same inventory.py and deploy.py as `pyinfra inventory.py deploy.py`, evaluated whole."""

"""Upgrade of RouterOS and of the firmware of a switch, from package files that the owner has downloaded.

All state is read from the switch, so an interrupted upgrade is simply run again.
"""

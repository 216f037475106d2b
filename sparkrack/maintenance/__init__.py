"""Runs by which an operator maintains machines: rebuild, restart, another driver, a restored or upgraded switch."""

"""Runs by which an operator changes machines: apply, rebuild, restart, another driver, a restored or upgraded
switch."""

"""An emulated MikroTik CRS812-8DS-2DQ-2DDQ or CRS804-4DDQ that speaks the RouterOS binary API.

It is an independent peer: it shares no code and no lane table with what drives it, so that both being
wrong in the same way is unlikely. It runs as its own process: ``python -m lab.routeros_emulator --config FILE``.
What it claims about RouterOS is taken from MikroTik's manual where a docstring names it; what is only
inferred is marked *inferred* there.
"""

"""What someone needs who looks for a fault of this rack and has no access to it: one archive without secrets."""

"""Pages looked at in a real browser."""

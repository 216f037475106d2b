"""What ends the bench in words."""


class BenchError(Exception):
    """A measurement cannot be made, or would compare things that are not the same. The text says what and why."""

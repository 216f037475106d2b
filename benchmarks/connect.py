"""A deploy that does nothing: pyinfra connects to every node and disconnects."""

"""Building blocks of pyinfra operations: read a node once, write files whole, test a change before it is confirmed."""

"""What two or more roles need of pyinfra: read a node once, write files whole, try a change before keeping it."""

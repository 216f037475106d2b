"""What is wrong with a rack file, and what is to be known about it; nothing is connected to."""

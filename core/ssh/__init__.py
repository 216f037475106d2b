"""OpenSSH: how a machine is reached, and by which keys."""

"""Access: each node logs in to each other one without a question, and nobody gets in by a password.

Every node makes a key pair of its own; the private key never leaves it. Public keys are exchanged, host keys are pinned
from what is read over connections that are already trusted, never from what the network says. The node's own name does
not stand for loopback, since a program that gives its name to others would give them an address of theirs. sshd takes
keys only; that change is on trial until a new login has worked. What this role does not do: it makes no user, renames
no node, and removes no key that others have put there.
"""

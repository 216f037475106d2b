"""Access: nodes log in to each other by key; password login is disabled.

Every node generates its own key pair; the private key never leaves it. Public keys are exchanged; host keys are pinned
from what is read over connections that are already trusted, never from the network. The node's own name does not
resolve to loopback, since a program that passes its name to other nodes would give them an address of theirs. sshd
accepts keys only; that change is pending until a new login has worked. The role creates no user, renames no node, and
removes no key that it did not add.
"""

from __future__ import annotations

from core.model.role import Role

ROLE = Role(
    __name__,
    title="Access",
    promise=(
        "a key pair for each node that never leaves it, public keys exchanged, host keys pinned, the node's "
        "own name not on loopback, sshd accepts keys only"
    ),
    proof=("logins from every node to every node, itself included, `getent`, `sshd -T`"),
    risky=True,
    spreads=True,
)

"""Which machines and which roles a command is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkrack.fleet.types import Rack

ROLES = ("preflight", "switch", "access", "driver", "memory", "docker", "lossless", "fabric", "rdma", "images")
"""Everything that deploy.py calls, in its order."""
ALWAYS = frozenset({"preflight"})
"""The gates come first, whatever is asked for."""


class SelectionError(Exception):
    """A name that the rack does not have, or nothing that is left."""


@dataclass(frozen=True)
class Selection:
    """`machines`: names of nodes and switches, in the order of the rack. `roles`: those that are evaluated."""

    machines: tuple[str, ...]
    roles: frozenset[str] = frozenset(ROLES)

    @property
    def whole(self) -> bool:
        """Whether every role is evaluated."""
        return self.roles == frozenset(ROLES)


def select(rack: Rack, limit: Iterable[str] = (), exclude: Iterable[str] = (), only: Iterable[str] = ()) -> Selection:
    """What --limit, --exclude and --only leave; a switch may be called as pyinfra does, `@routeros/NAME`.

    Roles that the rack leaves alone are not among them. Raises SelectionError for a name that is not in the rack, for
    a role that it leaves alone, and when no machine is left.
    """
    known = (*rack.nodes, *rack.switches)
    wanted = _named(rack, limit, "--limit") or set(known)
    left = tuple(name for name in known if name in wanted - _named(rack, exclude, "--exclude"))
    if not left:
        raise SelectionError("--limit and --exclude leave no machine")
    asked = frozenset(only)
    for role in rack.leave:
        if role in asked:
            raise SelectionError(f"{role}: the rack file leaves it alone; take it out of leave first")
    roles = asked | ALWAYS if asked else frozenset(ROLES).difference(rack.leave)
    return Selection(left, roles)


def _named(rack: Rack, names: Iterable[str], option: str) -> set[str]:
    known = {name: name for name in (*rack.nodes, *rack.switches)}
    spoken = known | {f"@routeros/{name}": name for name in rack.switches}
    found = set()
    for name in names:
        if name not in spoken:
            raise SelectionError(f"{option} {name}: not in the rack; there are {', '.join(known)}")
        found.add(spoken[name])
    return found

"""Selection of the hosts and roles of a command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from core.model.role import roles
from core.model.schema import Rack
from core.util.command_error import CommandError

ROLES = tuple(role.key for role in roles())
"""Everything that deploy.py calls, in its order."""
NODE_ROLES = tuple(role.key for role in roles() if role.machine == "node")
"""What is applied to a node, in the same order."""
ALWAYS = frozenset(role.key for role in roles() if role.gate)
"""The gates come first in every selection."""


GROUPS = ("nodes", "switches")
"""Names that stand for all nodes and all switches."""


class SelectionError(CommandError):
    """A name that the rack does not have, or nothing that is left."""


@dataclass(frozen=True)
class Selection:
    """`machines`: names of nodes and switches, in the order of the rack. `roles`: those that are evaluated. `removes`:
    whether they are taken off the machines, and not applied to them.
    """

    machines: tuple[str, ...]
    roles: frozenset[str] = frozenset(ROLES)
    removes: bool = False

    @property
    def whole(self) -> bool:
        """Return whether every role is evaluated."""
        return self.roles == frozenset(ROLES)


def select(rack: Rack, limit: Iterable[str] = (), exclude: Iterable[str] = (), only: Iterable[str] = ()) -> Selection:
    """Apply --limit, --exclude and --only. `limit` and `exclude`: names, the groups `nodes` and `switches`, and globs
    like `spark*`; a switch may have its pyinfra name, `@routeros/NAME`.

    Unmanaged roles of the rack are not selected. Raises SelectionError for a name, group or glob that matches no
    host, for an unmanaged role, and when no host is left.
    """
    known = (*rack.nodes, *rack.switches)
    wanted = _matching_names(rack, limit, "--limit") or set(known)
    excluded = _matching_names(rack, exclude, "--exclude")
    left = tuple(name for name in known if name in wanted and name not in excluded)
    if not left:
        raise SelectionError("--limit and --exclude leave no machine")
    asked = frozenset(only)
    for role in rack.leave:
        if role in asked:
            raise SelectionError(f"{role}: the rack file leaves it alone; take it out of leave first")
    return Selection(left, run_roles(rack, asked))


def run_roles(rack: Rack, only: Iterable[str] = ()) -> frozenset[str]:
    """The roles of a run: those asked for and the gates, or all; without those that the rack file leaves alone."""
    return (frozenset(only) | ALWAYS if only else frozenset(ROLES)).difference(rack.leave)


def select_nodes(rack: Rack, patterns: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the nodes that names, groups and globs match, in the order of the rack; all nodes without any.

    `option`: what stands before the pattern in an error, such as `--limit`; empty for an argument. A switch that a glob
    matches is left out. Raises SelectionError for a pattern that matches no node.
    """
    found = set[str]()
    for pattern in patterns:
        matches = _match_hosts(rack, pattern) & set(rack.nodes)
        if not matches:
            known = ", ".join(rack.nodes)
            raise SelectionError(f"{option} {pattern}: not a node of the rack; there are {known}".lstrip())
        found |= matches
    return tuple(name for name in rack.nodes if name in found) if found else tuple(rack.nodes)


def select_named(rack: Rack, patterns: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the hosts that names, groups and globs match, in the order of the rack; none without any.

    `option`: as in `select_nodes`. Raises SelectionError for a pattern that matches no host.
    """
    found = _matching_names(rack, patterns, option)
    return tuple(name for name in (*rack.nodes, *rack.switches) if name in found)


def _matching_names(rack: Rack, patterns: Iterable[str], option: str) -> set[str]:
    found = set[str]()
    for pattern in patterns:
        matches = _match_hosts(rack, pattern)
        if not matches:
            raise SelectionError(f"{option} {pattern}: {_no_match(rack, pattern)}".lstrip())
        found |= matches
    return found


def _match_hosts(rack: Rack, pattern: str) -> set[str]:
    groups = dict(zip(GROUPS, (set(rack.nodes), set(rack.switches)), strict=True))
    spoken = {name: name for name in (*rack.nodes, *rack.switches)}
    spoken |= {f"@routeros/{name}": name for name in rack.switches}
    # No host can have the name of a group (core/model/validation.py).
    return groups.get(pattern) or {name for reported, name in spoken.items() if fnmatchcase(reported, pattern)}


def _no_match(rack: Rack, pattern: str) -> str:
    known = (*rack.nodes, *rack.switches)
    if pattern == "switches":
        return f"the rack has no switches; there are {', '.join(known)}"
    groups = [name for name, hosts in (("nodes", rack.nodes), ("switches", rack.switches)) if hosts]
    near = get_close_matches(pattern.lower(), [*known, *groups], 1)
    return f"not in the rack; there are {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")

"""What deploy.py and remove.py call: a role on a machine, if the run is about both."""

from __future__ import annotations

from functools import cache

from pyinfra.api.host import Host
from pyinfra.context import ctx_host

from core.model.role import role_named, roles
from core.model.selection import run_roles

RUN_ROLES = "run_roles"
"""The host data that names the roles of a run of `sparkrack`; plain pyinfra has none."""


def is_plain_pyinfra() -> bool:
    """Whether pyinfra itself was started, and no verb of `sparkrack` that selects roles and holds the run lock."""
    return _selected_roles() is None


def runs(key: str) -> bool:
    """Whether this run evaluates a role on this host: the host is a machine of the role's kind, the rack file does not
    leave the role alone, and --only, where it is given, names it. Raises KeyError for an unknown role."""
    data, role, selected = _current_host().data, role_named(key), _selected_roles()
    if selected is None:
        selected = run_roles(data.rack)
    return key in selected and data.get(role.machine) is not None


def apply_role(key: str) -> None:
    """Apply a role to this host if it runs here. Each call must stand on a line of its own in deploy.py."""
    _import_roles("apply")
    if not runs(key):
        return
    role, data = role_named(key), _current_host().data
    role.module("apply").apply(rack=data.rack, **{role.machine: data.get(role.machine)})


def remove_role(key: str) -> None:
    """Take a role off this node if it runs here. Each call must stand on a line of its own in remove.py."""
    _import_roles("remove")
    if runs(key):
        data = _current_host().data
        role_named(key).module("remove").remove(rack=data.rack, node=data.node)


@cache
def _import_roles(name: str) -> None:
    """Import what applies or removes each role: the first look at a node asks what all need, in one command."""
    for role in roles():
        if name == "apply" or (role.machine == "node" and not role.gate):
            role.module(name)


def _selected_roles() -> frozenset[str] | None:
    """The roles that a verb of `sparkrack` has selected for this host. What --data of pyinfra sets is a text."""
    selected = _current_host().data.get(RUN_ROLES)
    return selected if isinstance(selected, frozenset) else None


def _current_host() -> Host:
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    return host

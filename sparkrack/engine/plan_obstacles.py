"""What stands in the way of the hosts of a plan that are unknown or refused, and what removes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from core.model.errors import NO_SUDO
from core.util.event import EventKind

if TYPE_CHECKING:
    from sparkrack.engine.plan import HostPlan, Plan

_UNIT_COMMAND = re.compile(r"`(sparkrack serve (?:stop|recreate) [\w.-]+)`")
"""How a refusal names what ends a unit that is in the way."""


def nodes_without_sudo(plan: Plan) -> list[str]:
    """Return the nodes on which sudo asks for a password: `sparkrack bootstrap` ends that."""
    return [host.name for host in plan.unknown_hosts if _lacks_sudo(host)]


def hosts_to_edit(plan: Plan) -> list[str]:
    """Return the hosts on which a file of others, of netplan, sshd or docker, must be edited first."""
    return [host.name for host in plan.unknown_hosts if _names_an_edit(host)]


def command_that_ends_unit(plan: Plan) -> str:
    """Return what ends the first unit that is in the way; empty unless each such host names a command of this kind."""
    found = [
        next((command[1] for text in texts if (command := _UNIT_COMMAND.search(text))), "")
        for texts in ([event.message for _, event in host.events(EventKind.REFUSED)] for host in plan.unknown_hosts)
    ]
    return found[0] if all(found) else ""


def _names_an_edit(host: HostPlan) -> bool:
    texts = (event.message for _, event in host.events(EventKind.REFUSED))
    return any(text in message for message in texts for text in ("(sudoedit ", "(sudo systemctl edit "))


def _lacks_sudo(host: HostPlan) -> bool:
    texts = (host.reason, *(event.message for _, event in host.events(EventKind.UNKNOWN)))
    return host.kind == "node" and any(NO_SUDO in text for text in texts)

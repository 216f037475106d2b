"""Refusal of a command that would take links down below a unit that runs."""

from __future__ import annotations

from collections.abc import Iterable

from core.model import Rack, Switch
from core.ssh.node_shells import WITNESS_SECONDS, NodeShells, open_shells
from core.util.command_error import CommandError
from serving.options import served_units
from switch.served_units import unit_refusals


def refuse_running_units(rack: Rack, switch: Switch, nodes: Iterable[str]) -> None:
    """Ask nodes whose links to a switch would go down. Raises CommandError while a unit runs on one, or one does not
    answer. A rack without units asks no node.
    """
    if not served_units(rack):
        return
    asked = tuple(nodes)
    with open_shells(rack, asked, WITNESS_SECONDS) as shells:
        if lines := unit_refusals(rack, switch, asked, NodeShells(shells)):
            raise CommandError("\n".join((*lines, "nothing was changed")))

"""Bring a node's flow control to the state in `desired`."""

from __future__ import annotations

from dataclasses import replace

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import remote_files
from core.ops.managed_service import ServiceChanges
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from roles.lossless import ROLE, boot_unit, desired
from roles.lossless.facts import LosslessFacts
from roles.lossless.services import LOSSLESS

_WHY = "no switch declares how its interface treats loss"


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Apply the flow control of each cable's switch on both halves of the port; reverted where the switch declares
    none.

    Does not protect from a switch that drops frames all the same: verify checks its counters.
    """
    configure_lossless(name="Treat loss on the fabric as the switch does", rack=rack, node=node)


@managed_operation("lossless", LosslessFacts)
def configure_lossless(facts: LosslessFacts) -> Changeset:
    """Set pause, or flow control of one priority: live, and by a unit that sets it whenever an interface appears."""
    if desired.left_alone(facts.rack, facts.node):
        return Changeset(in_sync_reason="loss is left as it is")
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    changes, units = _take_back(facts), tuple(map(boot_unit.instance, facts.policies))
    if not units:
        return changes.changeset("nothing is set about loss")
    wrong = {name: events for name, events in facts.wrong.items() if name in facts.policies}
    reasons = dict.fromkeys(map(boot_unit.instance, wrong), "its interface has other settings")
    changes += replace(LOSSLESS, units=units).differences(facts.state, reasons)
    changes += ServiceChanges(tuple(event for events in wrong.values() for event in events))
    return changes.changeset("loss is treated as the switch does")


def _take_back(facts: LosslessFacts) -> ServiceChanges:
    """Return what removes the units of interfaces without a policy, and all that is ours where none has one.

    First what is live: without its unit an interface would be forgotten if this failed half-way.
    """
    # The script for a port without a policy; the one on the node may differ, or be missing.
    script = remote_files.encoded(boot_unit.script(facts.rack.rack, {}))
    wrong = [name for name in facts.gone if name in facts.wrong]
    reset = ServiceChanges(
        tuple(event for name in wrong for event in facts.wrong[name]),
        tuple(sudo_script(f"base64 -d | sh -s {quote(name)}", stdin=script) for name in wrong),
    )
    gone = tuple(map(boot_unit.instance, facts.gone))
    if not facts.policies:
        # Also the unit of an interface that is not there any more.
        units = tuple(dict.fromkeys((*LOSSLESS.units, *gone)))
        return reset + replace(LOSSLESS, units=units).removal(facts.state, _WHY)
    return reset + replace(LOSSLESS, units=gone, paths=()).removal(replace(facts.state, there=bool(gone)), _WHY)

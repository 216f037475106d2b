"""Bring a node's flow control to the state in `desired`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import remote_files
from core.ops.announce import managed_file_change
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, acted, file_acted
from roles.lossless import ROLE, boot_unit, desired
from roles.lossless.facts import LosslessFacts


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
    obstacles, right = facts.obstacles, facts.right
    if obstacles:
        return Changeset(blockers=tuple(obstacles))
    if right:
        reason = "loss is treated as the switch does" if facts.policies else "nothing is set about loss"
        return Changeset(in_sync_reason=reason)
    commands = [*_take_back(facts)]
    if facts.policies:
        commands += [*_write(facts), *_start(facts)]
    else:
        commands.append(sudo_script(f"rm -f {desired.SCRIPT} {desired.UNIT}; systemctl daemon-reload"))
    return Changeset(events=tuple(_events(facts)), commands=tuple(commands))


def _events(facts: LosslessFacts) -> Iterator[Event]:
    for file in facts.stale:
        yield managed_file_change(file, facts.before[file.path])
    yield from file_acted(Action.REMOVE, *facts.unwanted)
    yield from acted(Action.DISABLE, *map(boot_unit.instance, facts.gone))
    added = (name for name in facts.policies if name not in facts.ours)
    yield from acted(Action.ENABLE, *map(boot_unit.instance, added))
    for changes in facts.wrong.values():
        yield from changes


def _take_back(facts: LosslessFacts) -> Iterator[StringCommand]:
    """First what is live: without its unit an interface would be forgotten if this failed half-way."""
    for name in [name for name in facts.gone if name in facts.wrong]:
        # The script for a port without a policy; the one on the node may differ, or be missing.
        yield sudo_script(
            f"base64 -d | sh -s {quote(name)}", stdin=remote_files.encoded(boot_unit.script(facts.rack.rack, {}))
        )
    if facts.gone:
        # `systemctl disable` fails when the unit was removed and its links were left.
        links = " ".join(f"/etc/systemd/system/*.device.wants/{boot_unit.instance(name)}" for name in facts.gone)
        yield sudo_script(
            f"systemctl stop {_units(facts.gone)} 2>/dev/null || true; rm -f {links}; systemctl daemon-reload"
        )


def _write(facts: LosslessFacts) -> Iterator[StringCommand]:
    """Write both files, each checked before it reaches systemd's folder; the unit names the script, so that
    is first.
    """
    for file in facts.stale:
        if file.path == desired.SCRIPT and facts.before[file.path] is None:
            yield sudo_script(f"install -d -m 755 {desired.SCRIPT.rpartition('/')[0]}")
        yield remote_files.put_managed(file)


def _start(facts: LosslessFacts) -> Iterator[StringCommand]:
    if any(file.path == desired.UNIT for file in facts.stale) or facts.new:
        yield sudo_script(f"systemctl daemon-reload; systemctl reenable --quiet {_units(facts.policies)}")
    again = [name for name in facts.policies if name in facts.wrong or name not in facts.ours]
    if again:
        yield sudo_script(f"systemctl restart {_units(again)}")


def _units(names: Iterable[str]) -> str:
    return quote(*(boot_unit.instance(name) for name in names))

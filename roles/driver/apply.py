"""Bring a node's driver and kernel to the state in `desired`, and hold them there."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import apt, remote_files
from core.ops.announce import file_diff
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, file_acted
from roles.driver import ROLE, desired, upgrade_blockers
from roles.driver.facts import DriverFacts
from roles.driver.options import DriverOptions


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Install driver and kernel at their declared versions, if any, hold them, and disable automatic upgrades; nothing
    without a section `driver`.

    Does not prevent a manual upgrade with --allow-change-held-packages: the next run reverts that where a version is
    declared, and holds what it finds else.
    """
    driver = rack.declared(DriverOptions)
    if driver is None:
        return
    close(name="Close every way by which the node upgrades itself", rack=rack, driver=driver)
    hold(name="Hold driver, kernel and container engine", rack=rack, driver=driver)
    install(
        name="Install the declared versions of driver and kernel",
        rack=rack,
        driver=driver,
        _serial=True,
    )
    tell_reboot(name="Say whether a reboot is needed", rack=rack, driver=driver)


@managed_operation("driver", DriverFacts)
def close(facts: DriverFacts) -> Changeset:
    """No timer and no service upgrades packages by itself, and apt's own would do nothing."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    wanted = upgrade_blockers.conf(facts.rack)
    if facts.conf == wanted and not facts.open:
        return Changeset(in_sync_reason="nothing upgrades the node by itself")
    events = [file_diff(upgrade_blockers.CONF, facts.conf, wanted)] if facts.conf != wanted else []
    events += acted(Action.STOP_AND_MASK, *(unit.name for unit in facts.open))
    events += file_acted(Action.MOVE, *(unit.instead for unit in facts.open if unit.instead))
    commands = [_mask_command(facts.open)] if facts.open else []
    if facts.conf != wanted:
        check = 'apt-config -c "$new" dump > /dev/null'
        commands.append(remote_files.put(upgrade_blockers.CONF, wanted, mode="644", check=check))
    return Changeset(events=tuple(events), commands=tuple(commands))


def _mask_command(units: list[upgrade_blockers.UpgradeUnit]) -> StringCommand:
    """One that upgrades right now is waited for: stopped, it would leave dpkg in the middle. Stopped before it is
    masked, since the mask is what the next run looks at, and again after it: nothing starts it any more by then."""
    names = quote(*(unit.name for unit in units))
    aside = "".join(
        f"install -d -m 700 {remote_files.BACKUPS}; "
        f"[ ! -e {quote(unit.instead)} ] && [ ! -L {quote(unit.instead)} ] || "
        f"mv -fT --backup=numbered {quote(unit.instead, f'{remote_files.BACKUPS}/{unit.name}')}; "
        for unit in units
        if unit.instead
    )
    return sudo_script(
        f"{apt.wait()}\nsystemctl stop {names} || true; {aside}systemctl --no-reload mask --quiet {names}; "
        f"systemctl daemon-reload; systemctl stop {names}"
    )


@managed_operation("driver", DriverFacts)
def hold(facts: DriverFacts) -> Changeset:
    """Hold the packages that must not change, if they are installed."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    names = desired.to_hold(facts.packages)
    if not names:
        return Changeset(in_sync_reason="what must not move is on hold")
    return Changeset(events=acted(Action.HOLD, *names), commands=(apt.hold(*names),))


@managed_operation("driver", DriverFacts, one_at_a_time=True)
def install(facts: DriverFacts) -> Changeset:
    """The declared versions, also older ones, on one node after the other; none after one that failed."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    if not facts.words and not facts.interrupted:
        return Changeset(in_sync_reason=_installed_reason(facts.driver))
    if facts.unit_blockers:
        return Changeset(blockers=tuple(facts.unit_blockers))
    events = []
    if facts.interrupted:
        events.append(Event(EventKind.CHANGE, subject="dpkg was interrupted", detail="dpkg --configure -a"))
    events += desired.changes(facts.packages, facts.words)
    if not facts.words:
        return Changeset(events=tuple(events), commands=(apt.finish(),))
    commands = (
        # claim: driver.downgrade
        apt.install(*facts.words, downgrade=True, held=True),
        # By patterns: installed dependencies are not known here, and would be left for the next run.
        sudo_script(f"{apt.wait()}\n{desired.hold_all()}"),
    )
    return Changeset(events=tuple(events), commands=commands)


def _installed_reason(driver: DriverOptions) -> str:
    """Return why nothing is installed."""
    return "driver and kernel are as declared" if driver.version else "no version is declared: what is installed stays"


@managed_operation("driver", DriverFacts)
def tell_reboot(facts: DriverFacts) -> Changeset:
    """A reboot is a result, never an act."""
    if facts.obstacles:
        return Changeset(blockers=tuple(facts.obstacles))
    return Changeset(
        warnings=tuple(Event(EventKind.NOTE, action=Action.REBOOT, detail=reason) for reason in facts.reboot),
        in_sync_reason="a reboot is needed" if facts.reboot else "no reboot is needed",
    )

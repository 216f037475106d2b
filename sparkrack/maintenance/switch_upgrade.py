"""Sequence of `sparkrack upgrade switch`: RouterOS and firmware of a switch, from package files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.model import Rack, SecretRef, Switch
from core.ops.run_lock import Holder, new_holder
from core.routeros.values import visible
from core.util.command_error import CommandError
from core.util.screen import Screen, ask_before_change
from sparkrack.bootstrap.switch_run import factory_password
from sparkrack.engine.silences import silenced, silences_of_switches
from sparkrack.engine.ssh_locking import lock_if_reachable
from sparkrack.maintenance.running_units_refusal import refuse_running_units
from switch import backup
from switch.executor import FAULTS
from switch.served_units import cabled_nodes
from switch.upgrade.packages import read_folder
from switch.upgrade.plan import UpgradePlan
from switch.upgrade.runner import SwitchLogin, SwitchUpgrade, find_login, once_answered, unfinished

RESTARTS, DOWNLOAD_SECONDS = 2, 1800
"""How often a switch restarts, and seconds for the rest, for which its alerts and those of its links are silent."""


@dataclass(frozen=True)
class UpgradeOptions:
    """`packages`: the folder with the package files. `sha256`: the file with their checksums. `address`, `api_port`:
    where a switch that was not bootstrapped yet answers. `password`: reference to that of the factory's user.
    `replace`: the switch need not show the certificate of rack.yaml. `listen`: the port from which it downloads, 0 for
    any. `timeout`: seconds that it may take to come back after a restart. `dry`: only show the steps. `yes`: do not
    ask. `no_nodes`: do not ask whether units run. `no_lock`: go on without the lock if the head node is unreachable.
    """

    packages: Path
    sha256: Path | None
    address: str
    api_port: int
    password: SecretRef | None
    replace: bool
    listen: int
    timeout: float
    dry: bool
    yes: bool
    no_nodes: bool
    no_lock: bool


@dataclass(frozen=True)
class UpgradeOutcome:
    """Result of an upgrade. `same`: the switch has nothing to upgrade, and its configuration is as before. `factory`:
    it was never bootstrapped."""

    same: bool
    factory: bool


def upgrade_switch(rack: Rack, switch: Switch, options: UpgradeOptions, screen: Screen) -> UpgradeOutcome:
    """Upgrade a switch, or only show the steps. Raises CommandError."""

    def say(text: str) -> None:
        screen.say(f"{switch.name}: {visible(text)}")

    sticker = factory_password(screen, switch.name, options.password, say)
    try:
        folder = read_folder(options.packages.expanduser(), options.sha256)
        place = backup.folder(rack.rack, switch.name) / "upgrades"
        wait = 0.0
        if unfinished(place):
            say("an earlier upgrade was not finished; the switch may still restart")
            wait = options.timeout

        def begin() -> tuple[SwitchUpgrade, UpgradePlan]:
            login = find_login(switch, options.address, options.api_port, sticker, replace=options.replace)
            work = SwitchUpgrade(switch, folder, login, place, say, options.listen, options.timeout)
            try:
                return work, work.plan()
            except BaseException:
                work.close()
                raise

        for last in (False, True):
            work, plan = once_answered(begin, wait)
            try:
                factory = work.login.factory
                return UpgradeOutcome(_confirm_and_upgrade(rack, work, plan, options, screen), factory)
            except FAULTS as fault:
                # A switch answers until seconds after the command to restart, which a killed run may have sent.
                if last or not wait or not work.lost:
                    raise
                say(f"{fault}; beginning again")
            finally:
                work.close()
    except FAULTS as fault:
        raise CommandError(f"{switch.name}: {visible(str(fault))}") from None
    raise AssertionError("the last attempt ends")


def _confirm_and_upgrade(
    rack: Rack, work: SwitchUpgrade, plan: UpgradePlan, options: UpgradeOptions, screen: Screen
) -> bool:
    """Show, ask, carry out. Returns whether the switch is as the plan declares it."""
    for line in (*plan.warnings, *plan.lines):
        work.say(line)
    if plan.empty:
        same = None if options.dry else work.compare(plan)
        work.say(f"nothing to do: it runs RouterOS {plan.unit.version}, firmware {plan.unit.firmware[0]}")
        return same is not False
    if options.dry:
        return False
    name = work.switch.name
    if not options.yes:
        ask_before_change(screen, name, "upgrade it?")
    own = new_holder(f"upgrade of {name}")
    silences, seconds = silences_of_switches(rack, [name]), RESTARTS * work.timeout + DOWNLOAD_SECONDS
    with (
        _hold_lock(rack, own, name, work.login, screen, no_lock=options.no_lock) as work.stopped,
        silenced(rack, own.id, f"upgrade of {name}", silences, seconds, work.say),
    ):
        # The nodes of a switch as it comes from its box may not exist yet; its links are down, or carry no unit.
        if not (options.no_nodes or work.login.factory):
            refuse_running_units(rack, work.switch, cabled_nodes(rack, work.switch))
        same = work.run(plan)
    work.say(f"upgraded to RouterOS {plan.version}")
    return bool(same)


@contextmanager
def _hold_lock(
    rack: Rack, own: Holder, name: str, login: SwitchLogin, screen: Screen, *, no_lock: bool
) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack. Without it a switch is upgraded that was not bootstrapped yet, since its nodes may not
    exist; one in service only with an option."""

    def alone(why: str) -> None:
        if not (no_lock or login.factory):
            raise CommandError(f"{why}; nothing was changed. If no other run is active: --no-lock")
        screen.say(f"{name}: {why}; continuing without the lock of the rack")

    with lock_if_reachable(rack, own, alone, screen.warn) as lost:
        yield lost

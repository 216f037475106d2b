"""`sparkrack switch upgrade`: RouterOS and firmware of a switch, from package files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import click
from pydantic import SecretStr

from core.model import Rack, SecretRef, load
from core.ops.run_lock import Holder, new_holder
from core.routeros.values import visible
from core.util.command_error import CommandError
from sparkrack.cli.bootstrap_switch import an_address, typed_password
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import (
    no_lock_option,
    no_nodes_option,
    password_options,
    rack_option,
    switch_argument,
    switches,
)
from sparkrack.cli.prompts import require_consent
from sparkrack.cli.running_units import refuse_running_units
from sparkrack.watch.silences import silenced, silences_of_switches
from switch import backup
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER
from switch.executor import FAULTS
from switch.served_units import cabled_nodes
from switch.upgrade.packages import read_folder
from switch.upgrade.plan import UpgradePlan
from switch.upgrade.runner import SwitchLogin, SwitchUpgrade, find_login, once_answered, unfinished

RESTARTS, DOWNLOAD_SECONDS = 2, 1800
"""How often a switch restarts, and seconds for the rest, for which its alerts and those of its links are silent."""
DIFFERS = 2
"""Exit code of --dry when there is something to upgrade, and of an upgrade after which the configuration differs."""


@click.command("upgrade")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "--packages",
    required=True,
    type=click.Path(path_type=Path, readable=False),
    metavar="FOLDER",
    help="Folder with the .npk files: routeros, and each other package that the switch has.",
)
@click.option(
    "--sha256",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Checksums of the files, as sha256sum writes them.  [default: SHA256SUMS in FOLDER, if it exists]",
)
@click.option(
    "--address",
    callback=an_address,
    default=FACTORY_ADDRESS,
    show_default=True,
    help="Where a switch that was not bootstrapped yet answers.",
)
@click.option("--api-port", type=click.IntRange(1, 65535), default=8728, show_default=True, help="Its plain API.")
@password_options("", f"{FACTORY_USER}'s")
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: it need not show the certificate in rack.yaml."
)
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    default=0,
    help="TCP port of this machine from which the switch downloads.  [default: any]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=600,
    show_default=True,
    help="Seconds the switch may take to come back after a restart.",
)
@click.option("--dry", is_flag=True, help="Only show the steps. Exit 2 when there are any.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@no_nodes_option("Do not ask the nodes whether units run there.")
@no_lock_option
def upgrade(
    name: str | None,
    rack: Path,
    packages: Path,
    sha256: Path | None,
    address: str,
    api_port: int,
    password: SecretRef | None,
    replace_fingerprint: bool,
    listen: int,
    timeout: float,
    dry: bool,
    yes: bool,
    no_nodes: bool,
    no_lock: bool,
) -> None:
    """Upgrade RouterOS and the firmware of a switch, from package files that you downloaded.

    \b
      sparkrack switch upgrade --packages ~/routeros-7.24.6

    For a switch as it comes from its box, or one in service. It checks files and switch, keeps a backup, lets the
    switch download the files from this machine, restarts it, writes the firmware, restarts it again, and compares the
    configuration with the one before. All links of the switch are down during each restart. Run it again after any
    interruption. A downgrade is refused, and so is an upgrade while a unit of several nodes runs on a node with a link
    to the switch, and one to a release that can be attacked or on which a change may not be undone
    (docs/reference/advisories.md).
    Exit 0 when the switch runs this version, 2 when its configuration is not as before, else 1.
    """
    found = load(rack)
    chosen = switch_argument(found, name)

    def say(text: str) -> None:
        click.echo(f"{chosen.name}: {visible(text)}")

    @cache
    def ask() -> SecretStr:
        return password.resolve() if password else typed_password(chosen.name)

    try:
        folder = read_folder(packages.expanduser(), sha256)
        place = backup.folder(found.rack, chosen.name) / "upgrades"
        wait = 0.0
        if unfinished(place):
            say("an earlier upgrade was not finished; the switch may still restart")
            wait = timeout

        def begin() -> tuple[SwitchUpgrade, UpgradePlan]:
            login = find_login(chosen, address, api_port, ask, replace=replace_fingerprint)
            work = SwitchUpgrade(chosen, folder, login, place, say, listen, timeout)
            try:
                return work, work.plan()
            except BaseException:
                work.close()
                raise

        for attempt in (1, 2):
            work, plan = once_answered(begin, wait)
            factory = work.login.factory
            try:
                code = _upgrade(found, work, plan, dry=dry, yes=yes, no_nodes=no_nodes, no_lock=no_lock)
                break
            except FAULTS as fault:
                # A switch answers until seconds after the command to restart, which a killed run may have sent.
                if attempt == 2 or not wait or not work.lost:
                    raise
                say(f"{fault}; beginning again")
            finally:
                work.close()
    except FAULTS as fault:
        raise CommandError(f"{chosen.name}: {visible(str(fault))}") from None
    if not dry:
        following = ("bootstrap", "switch", chosen.name) if factory else ("plan",)
        next_step(["sparkrack", *following], rack=rack)
    sys.exit(code)


def _upgrade(
    rack: Rack, work: SwitchUpgrade, plan: UpgradePlan, *, dry: bool, yes: bool, no_nodes: bool, no_lock: bool
) -> int:
    """Show, ask, carry out. Returns the exit code."""
    for line in (*plan.warnings, *plan.lines):
        work.say(line)
    if plan.empty:
        same = None if dry else work.compare(plan)
        work.say(f"nothing to do: it runs RouterOS {plan.unit.version}, firmware {plan.unit.firmware[0]}")
        return DIFFERS if same is False else 0
    if dry:
        return DIFFERS
    name = work.switch.name
    if not yes and not sys.stdin.isatty():
        raise CommandError(f"{name}: there is no terminal for a prompt; pass -y")
    if not yes:
        require_consent(f"{name}: upgrade it?")
    own = new_holder(f"upgrade of {name}")
    silences, seconds = silences_of_switches(rack, [name]), RESTARTS * work.timeout + DOWNLOAD_SECONDS
    with (
        _lock(rack, own, name, work.login, no_lock=no_lock) as work.stopped,
        silenced(rack, own.id, f"upgrade of {name}", silences, seconds, work.say),
    ):
        # The nodes of a switch as it comes from its box may not exist yet; its links are down, or carry no unit.
        if not (no_nodes or work.login.factory):
            refuse_running_units(rack, work.switch, cabled_nodes(rack, work.switch))
        same = work.run(plan)
    work.say(f"upgraded to RouterOS {plan.version}")
    return 0 if same else DIFFERS


@contextmanager
def _lock(rack: Rack, own: Holder, name: str, login: SwitchLogin, *, no_lock: bool) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack. Without it a switch is upgraded that was not bootstrapped yet, since its nodes may not
    exist; one in service only with an option."""
    from sparkrack.engine.ssh_locking import lock_if_reachable

    def alone(why: str) -> None:
        if not (no_lock or login.factory):
            raise CommandError(f"{why}; nothing was changed. If no other run is active: --no-lock")
        click.echo(f"{name}: {why}; continuing without the lock of the rack")

    with lock_if_reachable(rack, own, alone) as lost:
        yield lost

"""`sparkrack bootstrap switch`: the first contact with a switch as it comes from its box."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import click
from pydantic import SecretStr

from core.model import ConfigError, Rack, SecretError, SecretRef, Switch, load, yaml_editor
from core.model.fields import PLAIN_API_PORT
from core.ops.run_lock import Holder
from core.routeros.errors import CheckError, RefusedError, SwitchError, UnreadableError
from core.util.command_error import CommandError
from sparkrack.cli.bootstrap_nodes import BOOTSTRAP
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import password_options, rack_option, switch_argument, switches
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.prompts import hidden_prompt
from sparkrack.engine.recorded_run import recorded_run
from switch.bootstrap.context import BootstrapOptions, SwitchBootstrapContext
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER
from switch.bootstrap.passwords import Password
from switch.bootstrap.runner import SwitchBootstrap

LONGEST_PREFIX = 30
WARNED = 2
"""Exit code of a contact that is done with a warning."""
_FAULTS = (SwitchError, CheckError, RefusedError, UnreadableError, SecretError, ConfigError)


@dataclass(frozen=True)
class BootstrapOutcome:
    """Result of a first contact. ready: nothing is missing. warned: the factory's user could not be disabled, or the
    release can be attacked."""

    ready: bool
    warned: bool


def an_address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return str(IPv4Address(value))
    except ValueError:
        raise click.BadParameter(f"{value} is not an IPv4 address") from None


@click.command("switch")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "--address", callback=an_address, default=FACTORY_ADDRESS, show_default=True, help="Where the switch answers now."
)
@click.option(
    "--api-port", type=click.IntRange(1, 65535), default=PLAIN_API_PORT, show_default=True, help="Its plain API."
)
@password_options("", f"{FACTORY_USER}'s")
@click.option(
    "--prefix",
    type=click.IntRange(8, LONGEST_PREFIX),
    help="Length of the address it gets.  [default: management's, 24]",
)
@click.option(
    "--admin",
    type=click.Choice(["disable", "password"]),
    default="disable",
    show_default=True,
    help=f"What becomes of {FACTORY_USER}: disabled, or a new password.",
)
@click.option(
    "--admin-file", type=click.Path(path_type=Path, readable=False), help="Where that password is, or is made."
)
@click.option("--keep-address", is_flag=True, help="The old address stays, and the new one need not answer yet.")
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: another one in rack.yaml is overwritten."
)
@click.option("--timeout", type=click.FloatRange(0, 600), default=15, show_default=True, help="Seconds to wait for it.")
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_switch(
    name: str | None,
    rack: Path,
    address: str,
    api_port: int,
    password: SecretRef | None,
    prefix: int | None,
    admin: str,
    admin_file: Path | None,
    keep_address: bool,
    replace_fingerprint: bool,
    timeout: float,
    dry: bool,
) -> None:
    """Bring a switch from its box to where a run can reach it: certificate, user, address.

    Connect this machine to its first RJ45 port, and to nothing else, until the fingerprint is in rack.yaml: until
    then the sticker's password goes in the clear. Each step looks first and writes what is missing; run it again
    after any interruption. It holds the lock of the rack if the first node answers already. Exit 0 when the switch
    is ready (with --dry: when it was read), 2 when it is ready with a warning: the switch refuses to disable the user
    admin, which has a new password instead, or its release can be attacked (docs/reference/advisories.md); else 1.
    """
    if (admin == "password") != (admin_file is not None):
        raise click.UsageError("--admin password and --admin-file PATH belong together")
    # Snapshot before the reading: a later write replaces exactly the content that was read, or fails.
    snapshot = yaml_editor.snapshot(rack)
    found = load(rack)
    switch = switch_argument(found, name)
    options = BootstrapOptions(
        address=address,
        api_port=api_port,
        prefix=prefix or natural_prefix(switch),
        admin=admin_file.absolute() if admin_file else None,
        keep_address=keep_address,
        replace=replace_fingerprint,
        timeout=timeout,
    )
    with recorded_run(found, BOOTSTRAP) as record, show_progress(silent=False) as screen:
        own = None if dry else record.begin(f"bootstrap of {switch.name}")
        try:
            outcome = carry_out(found, snapshot, switch, options, password, screen, own)
        except CommandError as fault:
            record.fail(switch.name, str(fault))
            raise
    if dry:
        click.echo(f"{switch.name}: {'nothing is missing' if outcome.ready else 'nothing was written'}")
    else:
        click.echo(f"{switch.name}: ready")
    again = dry and not outcome.ready
    next_step(["sparkrack", *(("bootstrap", "switch", switch.name) if again else ("plan",))], rack=rack)
    if outcome.warned and not dry:
        sys.exit(WARNED)


def carry_out(
    rack: Rack,
    snapshot: yaml_editor.FileSnapshot,
    switch: Switch,
    options: BootstrapOptions,
    kept: SecretRef | None,
    screen: ProgressDisplay,
    own: Holder | None,
) -> BootstrapOutcome:
    """Run the first contact, under the lock of the rack if it can be taken. `kept`: reference to the factory's
    password, which is asked for otherwise. `screen`: shows the progress. `own`: the run that takes the lock; None for a
    dry run. Raises CommandError.
    """

    def ask() -> SecretStr:
        if kept:
            return kept.resolve()
        with screen.hidden():
            return typed_password(switch.name)

    def say(text: str) -> None:
        screen.say(f"{switch.name}: {text}")

    work = SwitchBootstrapContext(switch, snapshot, options, say, Password(switch.password), progress=screen)
    dry = own is None
    lock = _lock(rack, switch, screen, own) if own else nullcontext(lambda: "")
    with lock as work.stopped:
        screen.phase("read the switch" if dry else "bootstrap the switch", [switch.name])
        try:
            contact = SwitchBootstrap(work, ask)
            ready = contact.run(dry=dry)
            return BootstrapOutcome(ready, contact.warned or bool(contact.faults))
        except _FAULTS as fault:
            raise CommandError(f"{switch.name}: {fault}") from None


@contextmanager
def _lock(rack: Rack, switch: Switch, screen: ProgressDisplay, own: Holder) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack if its first node answers. On the first day it has neither our user nor our key, and
    this machine may be connected by the switch's separate cable without a route to any node.
    """
    from sparkrack.engine.ssh_locking import lock_if_reachable

    screen.phase("take the lock of the rack")

    def alone(why: str) -> None:
        screen.say(f"{switch.name}: {why}; continuing without the lock of the rack")

    with lock_if_reachable(rack, own, alone, screen.warn) as lost:
        yield lost


def natural_prefix(switch: Switch) -> int:
    """Return the prefix length of the management subnet of the switch; 24 when none is declared, or only single
    machines.
    """
    around = [subnet.prefixlen for subnet in switch.management or () if switch.address in subnet]
    return next((length for length in around if length <= LONGEST_PREFIX), 24)


def typed_password(switch: str) -> SecretStr:
    """Ask for the password of the factory's user. Raises SecretError without a terminal."""
    if not sys.stdin.isatty():
        raise SecretError(
            f"{FACTORY_USER}'s password is needed and there is no terminal for a prompt; pass --password-env or "
            "--password-file"
        )
    return hidden_prompt(f"{switch}: password of {FACTORY_USER} (on the sticker)")

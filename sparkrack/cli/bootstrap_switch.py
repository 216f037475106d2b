"""`sparkrack bootstrap switch`: the first contact with a switch as it comes from its box."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import click
from pydantic import SecretStr

from sparkrack.cli.hidden import hidden
from sparkrack.cli.machines import switches
from sparkrack.cli.pick import the_switch
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.wordless import reference
from sparkrack.fleet import Rack, RackError, SecretError, SecretRef, Switch, edit, load
from sparkrack.fleet.load import DEFAULT
from switch.bootstrap.passwords import Password
from switch.bootstrap.run import Bootstrap
from switch.bootstrap.tables import FACTORY_ADDRESS, FACTORY_USER
from switch.bootstrap.work import Wishes, Work
from switch.errors import CheckError, RefusedError, SwitchError, UnreadableError

LONGEST_PREFIX = 30
WARNED = 2
"""Exit code of a contact that is done with a warning."""
_FAULTS = (SwitchError, CheckError, RefusedError, UnreadableError, SecretError, RackError)


@dataclass(frozen=True)
class Outcome:
    """How a contact ended. ready: nothing is missing. warned: the factory's user could not be disabled."""

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
@click.option("--api-port", type=click.IntRange(1, 65535), default=8728, show_default=True, help="Its plain API.")
@click.option("--password-env", metavar="VARIABLE", help=f"Holds {FACTORY_USER}'s password; asked for otherwise.")
@click.option("--password-file", metavar="PATH", help=f"Holds {FACTORY_USER}'s password; nobody else may read it.")
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
@click.option(
    "--patience", type=click.FloatRange(0, 600), default=15, show_default=True, help="Seconds to wait for it."
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_switch(
    name: str | None,
    rack: Path,
    address: str,
    api_port: int,
    password_env: str | None,
    password_file: str | None,
    prefix: int | None,
    admin: str,
    admin_file: Path | None,
    keep_address: bool,
    replace_fingerprint: bool,
    patience: float,
    dry: bool,
) -> None:
    """Bring a switch from its box to where a run can reach it: certificate, user, address.

    Connect this machine to its first RJ45 port, and to nothing else, until the fingerprint is in rack.yaml: until
    then the sticker's password goes in the clear. Each step looks first and writes what is missing; run it again
    after any interruption. It holds the lock of the rack if the first node answers already. Exit 0 when the switch
    is ready (with --dry: when it was read), 2 when it is ready but for the user admin, which the switch refuses to
    disable and which has a new password instead, else 1.
    """
    if (admin == "password") != (admin_file is not None):
        raise click.UsageError("--admin password and --admin-file PATH belong together")
    # Taken before it is read: what is written later is written over exactly what was read, or not at all.
    snapshot = edit.taken(rack)
    found = load(rack)
    switch = the_switch(found, name)
    wishes = Wishes(
        address=address,
        api_port=api_port,
        prefix=prefix or natural_prefix(switch),
        admin=admin_file.absolute() if admin_file else None,
        keep_address=keep_address,
        replace=replace_fingerprint,
        patience=patience,
    )
    outcome = carry_out(found, snapshot, switch, wishes, reference(password_env, password_file), dry=dry)
    if dry:
        click.echo(f"{switch.name}: {'nothing is missing' if outcome.ready else 'nothing was written'}")
    else:
        environment = f"RACK={rack} " if rack != DEFAULT else ""
        click.echo(f"{switch.name}: ready. Next: {environment}pyinfra inventory.py deploy.py --dry --diff")
        if outcome.warned:
            sys.exit(WARNED)


def carry_out(
    rack: Rack, snapshot: edit.Snapshot, switch: Switch, wishes: Wishes, kept: SecretRef | None, *, dry: bool
) -> Outcome:
    """The contact itself, under the lock of the rack if there is one. `kept`: where
    the factory's password is; asked for otherwise. Raises ClickException."""

    def ask() -> SecretStr:
        return kept.resolve() if kept else _typed(switch.name)

    work = Work(switch, snapshot, wishes, lambda text: click.echo(f"{switch.name}: {text}"), Password(switch.password))
    lock: AbstractContextManager[None] = nullcontext() if dry else _lock(rack, switch)
    with lock:
        try:
            contact = Bootstrap(work, ask)
            return Outcome(contact.run(dry=dry), contact.warned)
        except _FAULTS as fault:
            raise click.ClickException(f"{switch.name}: {fault}") from None


@contextmanager
def _lock(rack: Rack, switch: Switch) -> Iterator[None]:
    """Hold the lock of the rack if its first node answers. On the first day it has neither our user nor our key, and
    this machine may hang on the switch's own cable with no way to any node."""
    from sparkrack.cli.holding import holding_if_there

    def alone(why: str) -> None:
        click.echo(f"{switch.name}: {why}; so nobody else is kept out of the rack")

    with holding_if_there(rack, f"bootstrap of {switch.name}", alone):
        yield


def natural_prefix(switch: Switch) -> int:
    """That of the management subnet the switch is in; 24 when none is declared, or only single machines."""
    around = [subnet.prefixlen for subnet in switch.management or () if switch.address in subnet]
    return next((length for length in around if length <= LONGEST_PREFIX), 24)


def _typed(switch: str) -> SecretStr:
    if not sys.stdin.isatty():
        raise SecretError(
            f"{FACTORY_USER}'s password is needed and there is no terminal to ask on; say --password-env or "
            "--password-file"
        )
    return hidden(f"{switch}: password of {FACTORY_USER} (on the sticker)")

"""`sparkrack bootstrap nodes`: the first contact with nodes as their first-boot wizard left them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from pydantic import SecretStr

from sparkrack.bootstrap.doors import Desk
from sparkrack.bootstrap.errors import ContactError
from sparkrack.bootstrap.operator import public_line
from sparkrack.bootstrap.passwords import Passwords
from sparkrack.bootstrap.run import Nodes, Trust
from sparkrack.bootstrap.trust import vouchers_of
from sparkrack.cli.hidden import hidden
from sparkrack.cli.machines import nodes as known_nodes
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.show import printable
from sparkrack.cli.wordless import reference
from sparkrack.fleet import Rack, SecretError, load
from sparkrack.fleet.errors import one_line

PATIENCE = 15.0

as_option = click.option(
    "--as",
    "account",
    metavar="USER",
    help="The account that the first-boot wizard made.  [default: asked for, or access.user]",
)
host_keys_option = click.option(
    "--host-keys",
    type=click.Path(path_type=Path, readable=False, dir_okay=False),
    help="Fingerprints read off the consoles, NODE SHA256:... a line; or a known_hosts file.",
)
replace_option = click.option(
    "--replace-host-key", is_flag=True, help="The nodes were re-imaged: other pinned host keys may be replaced."
)


@click.command("nodes")
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=known_nodes)
@rack_option
@as_option
@click.option("--password-env", metavar="VARIABLE", help="Holds that account's password; asked for otherwise.")
@click.option("--password-file", metavar="PATH", help="Holds that account's password; nobody else may read it.")
@host_keys_option
@replace_option
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600),
    default=PATIENCE,
    show_default=True,
    help="Seconds to wait for a node.",
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_nodes(
    names: tuple[str, ...],
    rack: Path,
    account: str | None,
    password_env: str | None,
    password_file: str | None,
    host_keys: Path | None,
    replace_host_key: bool,
    patience: float,
    dry: bool,
) -> None:
    """Bring nodes from their first-boot wizard to where a run can reach them.

    Shows the host keys of nodes that are not known yet and asks whether they are theirs; logs in once with a password
    if the operator's key is not let in; makes access.user with that key and sudo without a password; names the node;
    gives it host keys and a machine-id of its own if another node has the same. All nodes, or those that are named;
    each for itself. Each step looks first and writes what is missing; run it again after any interruption. It holds
    the lock of the rack if the first node lets us in already. Exit 0 when all these nodes are ready (with --dry: when
    they were read), else 1.
    """
    passwords = reference(password_env, password_file)
    with contact(load(rack), names, account, Passwords(passwords, typed), host_keys, replace_host_key, patience) as run:
        carry_out(run, dry=dry)
    if run.failed:
        sys.exit(1)
    if dry:
        click.echo("nothing was written" if run.missing else "nothing is missing")


@contextmanager
def contact(
    rack: Rack,
    names: tuple[str, ...],
    account: str | None,
    passwords: Passwords,
    host_keys: Path | None,
    replace: bool,
    patience: float,
) -> Iterator[Nodes]:
    """One run over these nodes, or all. Raises ClickException for what is wrong before any connection."""
    unknown = [name for name in names if name not in rack.nodes]
    if unknown:
        raise click.ClickException(f"{one_line(unknown[0])}: not a node; there are {', '.join(rack.nodes)}")
    try:
        key = public_line(rack.access.key)
        found = vouchers_of(rack, host_keys) if host_keys else {}
    except ContactError as fault:
        raise click.ClickException(printable(str(fault))) from None
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        desk = Desk(
            rack=rack,
            key=key,
            account=_account(account, rack.access.user, passwords),
            passwords=passwords,
            folder=Path(folder),
            patience=patience,
            say=lambda text: click.echo(printable(text)),
        )
        chosen = tuple(name for name in rack.nodes if not names or name in names)
        yield Nodes(desk, Trust(host_keys, found, _confirm, replace), chosen)


def carry_out(run: Nodes, *, dry: bool) -> None:
    """The contact itself, under the lock of the rack if there is one, and its last lines."""
    lock: AbstractContextManager[Any] = nullcontext() if dry else _lock(run)
    with lock:
        run.run(dry=dry)
    fine = len(run.names) - len(run.failed)
    if run.restart:
        click.echo(f"to be restarted, for their new machine-id: {', '.join(run.restart)}")
    for name, why in run.failed.items():
        click.echo(printable(f"{name}: {why}"), err=True)
    click.echo(f"{fine} of {len(run.names)} nodes {'read' if dry else 'ready'}")


@contextmanager
def _lock(run: Nodes) -> Iterator[None]:
    """Hold the lock of the rack if its first node lets us in: on the first day it does not."""
    from sparkrack.cli.holding import holding_if_there

    def alone(why: str) -> None:
        click.echo(printable(f"{why}; so nobody else is kept out of the rack"))

    with holding_if_there(run.desk.rack, f"bootstrap of {', '.join(run.names)}", alone):
        yield


def _account(given: str | None, user: str, passwords: Passwords) -> Callable[[], str]:
    """The account, asked for once and not before it is needed."""

    @cache
    def ask() -> str:
        if given:
            return given
        if passwords.reference or not sys.stdin.isatty():
            return user
        said: str = click.prompt("the account that the first-boot wizard made", default=user, err=True)
        return said

    return ask


def typed(node: str, user: str) -> SecretStr:
    """A password from the terminal. Raises SecretError when there is none."""
    if not sys.stdin.isatty():
        raise SecretError(
            f"a password of {one_line(user)} is needed and there is no terminal to ask on; say --password-env or "
            "--password-file"
        )
    return hidden(f"{node}: password of {one_line(user)}")


def _confirm(node: str, key: str) -> bool:
    if not sys.stdin.isatty():
        click.echo(f"{node}: there is no terminal to ask on whether {key} is its host key; say --host-keys", err=True)
        return False
    return click.confirm(f"{node}: is {key} its host key, as its console shows it?", default=False, err=True)

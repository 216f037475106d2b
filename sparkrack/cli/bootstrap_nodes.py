"""`sparkrack bootstrap nodes`: the first contact with nodes as their first-boot wizard left them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from pydantic import SecretStr

from core.model import Rack, SecretError, SecretRef, load
from core.model.errors import printable_line
from core.model.selection import SelectionError, select_nodes
from core.ops.run_lock import Holder
from core.util.command_error import CommandError
from sparkrack.bootstrap.errors import BootstrapError
from sparkrack.bootstrap.host_trust import fingerprints_of
from sparkrack.bootstrap.login_methods import NodesContext
from sparkrack.bootstrap.operator_key import public_line
from sparkrack.bootstrap.passwords import Passwords
from sparkrack.bootstrap.runner import NodesBootstrap, Trust
from sparkrack.cli.next_step import next_step, same_again
from sparkrack.cli.options import node_patterns, password_options, rack_option
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.prompts import ask as ask_text
from sparkrack.cli.prompts import confirm, hidden_prompt
from sparkrack.cli.render_plan import printable
from sparkrack.engine.recorded_run import recorded_run

DEFAULT_WAIT_SECONDS = 15.0
BOOTSTRAP = "bootstrap: Bring the host into the rack"
"""The operation, in the journal of a run."""

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
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=node_patterns)
@rack_option
@as_option
@password_options("", "that account's")
@host_keys_option
@replace_option
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600),
    default=DEFAULT_WAIT_SECONDS,
    show_default=True,
    help="Seconds to wait for a node.",
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_nodes(
    names: tuple[str, ...],
    rack: Path,
    account: str | None,
    password: SecretRef | None,
    host_keys: Path | None,
    replace_host_key: bool,
    timeout: float,
    dry: bool,
) -> None:
    """Bring nodes from their first-boot wizard to where a run can reach them.

    Shows the host keys of nodes that are not known yet and asks whether they are theirs; logs in once with a password
    if the operator's key is not let in; makes access.user with that key and sudo without a password; names the node;
    gives it host keys and a machine-id of its own if another node has the same. All nodes, or those that are named;
    each for itself. Each step looks first and writes what is missing; run it again after any interruption. It holds
    the lock of the rack if the first node accepts our key already. Exit 0 when all these nodes are ready (with --dry:
    when they were read), else 1.
    """
    found = load(rack)
    with recorded_run(found, BOOTSTRAP) as record, show_progress(silent=False) as screen:
        passwords = Passwords(password, partial(typed, screen))
        with contact(found, names, account, passwords, host_keys, replace_host_key, timeout, screen) as run:
            own = None if dry else record.begin(f"bootstrap of {', '.join(run.names)}")
            carry_out(run, screen, own)
            for name, why in run.failed.items():
                record.fail(name, why)
    if run.failed:
        same_again("when this is fixed")
        sys.exit(1)
    if dry:
        click.echo("nothing was written" if run.missing else "nothing is missing")
    if dry and run.missing:
        next_step(["sparkrack", "bootstrap", "nodes", *names], rack=rack)
    else:
        next_step(["sparkrack", "plan"], rack=rack, limit=names)


@contextmanager
def contact(
    rack: Rack,
    names: tuple[str, ...],
    account: str | None,
    passwords: Passwords,
    host_keys: Path | None,
    replace: bool,
    timeout: float,
    screen: ProgressDisplay,
) -> Iterator[NodesBootstrap]:
    """One run over these nodes, or all. `screen`: shows its progress. Raises CommandError for what is wrong before
    any connection.
    """
    try:
        chosen = select_nodes(rack, names, "")
    except SelectionError as fault:
        raise CommandError(printable_line(str(fault))) from None
    try:
        key = public_line(rack.access.key)
        found = fingerprints_of(rack, host_keys) if host_keys else {}
    except BootstrapError as fault:
        raise CommandError(printable(str(fault))) from None
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        context = NodesContext(
            rack=rack,
            key=key,
            account=_account(account, rack.access.user, passwords, screen),
            passwords=passwords,
            folder=Path(folder),
            timeout=timeout,
            say=lambda text: screen.say(printable(text)),
            progress=screen,
        )
        yield NodesBootstrap(context, Trust(host_keys, found, partial(_confirm, screen), replace), chosen)


def carry_out(run: NodesBootstrap, screen: ProgressDisplay, own: Holder | None) -> None:
    """The contact itself, under the lock of the rack if there is one, and its last lines. `own`: the run that takes the
    lock; None for a dry run.
    """
    with _lock(run, screen, own) if own else nullcontext(lambda: "") as lost:
        run.run(dry=own is None, lost=lost)
    fine = len(run.names) - len(run.failed)
    if run.restart:
        screen.say(f"to be restarted, for their new machine-id: {', '.join(run.restart)}")
    for name, why in run.failed.items():
        screen.say(printable(f"{name}: {why}"), err=True)
    screen.say(f"{fine} of {len(run.names)} nodes {'ready' if own else 'read'}")


@contextmanager
def _lock(run: NodesBootstrap, screen: ProgressDisplay, own: Holder) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack if its first node accepts our login: on the first day it does not."""
    from sparkrack.engine.ssh_locking import lock_if_reachable

    screen.phase("take the lock of the rack")

    def alone(why: str) -> None:
        screen.say(printable(f"{why}; continuing without the lock of the rack"))

    with lock_if_reachable(run.context.rack, own, alone, screen.warn) as lost:
        yield lost


def _account(given: str | None, user: str, passwords: Passwords, screen: ProgressDisplay) -> Callable[[], str]:
    """Return the account, asked for once and not before it is needed."""

    @cache
    def ask() -> str:
        if given:
            return given
        if passwords.reference or not sys.stdin.isatty():
            return user
        with screen.hidden():
            return ask_text("the account that the first-boot wizard made", user)

    return ask


def typed(screen: ProgressDisplay, node: str, user: str) -> SecretStr:
    """Read a password from the terminal. Raises SecretError when there is none."""
    if not sys.stdin.isatty():
        raise SecretError(
            f"a password of {printable_line(user)} is needed and there is no terminal for a prompt; "
            "pass --password-env or --password-file"
        )
    with screen.hidden():
        return hidden_prompt(f"{node}: password of {printable_line(user)}")


def _confirm(screen: ProgressDisplay, node: str, key: str) -> bool:
    if not sys.stdin.isatty():
        screen.say(
            f"{node}: there is no terminal for a prompt whether {key} is its host key; pass --host-keys", err=True
        )
        return False
    with screen.hidden():
        return confirm(f"{node}: is {key} its host key, as its console shows it?")

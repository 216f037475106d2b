"""Sequence of `sparkrack bootstrap nodes`: the first contact with nodes as their first-boot wizard left them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr

from core.model import Rack, SecretError
from core.model.errors import printable, printable_line
from core.model.selection import SelectionError, select_nodes
from core.ops.run_lock import Holder
from core.ssh.operator_key import OperatorKeyError, public_line
from core.util.command_error import CommandError
from core.util.screen import Screen
from sparkrack.bootstrap.host_trust import fingerprints_of
from sparkrack.bootstrap.login_methods import NodesContext
from sparkrack.bootstrap.runner import NodesBootstrap, Trust
from sparkrack.engine.recorded_run import RecordedRun
from sparkrack.engine.ssh_locking import lock_if_reachable
from sparkrack.node_login.errors import BootstrapError
from sparkrack.node_login.passwords import Passwords

BOOTSTRAP = "bootstrap: Bring the host into the rack"
"""The operation, in the journal of a run."""


@contextmanager
def contact(
    rack: Rack,
    names: tuple[str, ...],
    account: str | None,
    passwords: Passwords,
    host_keys: Path | None,
    replace: bool,
    timeout: float,
    screen: Screen,
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
    except (BootstrapError, OperatorKeyError) as fault:
        raise CommandError(printable(str(fault))) from None
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        context = NodesContext(
            rack=rack,
            key=key,
            account=_account_question(account, rack.access.user, passwords, screen),
            passwords=passwords,
            folder=Path(folder),
            timeout=timeout,
            say=lambda text: screen.say(printable(text)),
            progress=screen,
        )
        yield NodesBootstrap(context, Trust(host_keys, found, partial(_confirm_host_key, screen), replace), chosen)


def carry_out(run: NodesBootstrap, screen: Screen, own: Holder | None, record: RecordedRun) -> None:
    """The contact itself, under the lock of the rack if there is one, and its last lines. `own`: the run that takes the
    lock; None for a dry run. `record`: gets the failures.
    """
    with _hold_lock(run, screen, own) if own else nullcontext(lambda: "") as lost:
        run.run(dry=own is None, lost=lost)
    fine = len(run.names) - len(run.failed)
    if run.restart:
        screen.say(f"to be restarted, for their new machine-id: {', '.join(run.restart)}")
    for name, why in run.failed.items():
        screen.say(printable(f"{name}: {why}"), err=True)
        record.fail(name, why)
    screen.say(f"{fine} of {len(run.names)} nodes {'ready' if own else 'read'}")


@contextmanager
def _hold_lock(run: NodesBootstrap, screen: Screen, own: Holder) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack if its first node accepts our login: on the first day it does not."""
    screen.phase("take the lock of the rack")

    def alone(why: str) -> None:
        screen.say(printable(f"{why}; continuing without the lock of the rack"))

    with lock_if_reachable(run.context.rack, own, alone, screen.warn) as lost:
        yield lost


def _account_question(given: str | None, user: str, passwords: Passwords, screen: Screen) -> Callable[[], str]:
    """Return the account, asked for once and not before it is needed."""

    @cache
    def ask() -> str:
        if given:
            return given
        if passwords.reference or not screen.interactive:
            return user
        return screen.ask("the account that the first-boot wizard made", user)

    return ask


def typed_password(screen: Screen, node: str, user: str) -> SecretStr:
    """Read a password from the terminal. Raises SecretError when there is none."""
    if not screen.interactive:
        raise SecretError(
            f"a password of {printable_line(user)} is needed and there is no terminal for a prompt; "
            "pass --password-env or --password-file"
        )
    return screen.hidden_prompt(f"{node}: password of {printable_line(user)}")


def _confirm_host_key(screen: Screen, node: str, key: str) -> bool:
    if not screen.interactive:
        screen.say(
            f"{node}: there is no terminal for a prompt whether {key} is its host key; pass --host-keys", err=True
        )
        return False
    return screen.confirm(f"{node}: is {key} its host key, as its console shows it?")

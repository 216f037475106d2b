"""Shells on nodes that refuse the operator's key, by a password that is typed for the reading and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pydantic import SecretStr

from core.model import SecretError
from core.model.errors import printable_line
from core.ssh.host_keys import HostKey
from core.ssh.root_shell import UnreachableError
from core.util.screen import Screen
from sparkrack.discovery.collect import NodeShell
from sparkrack.node_login.errors import BootstrapError, WrongPasswordError
from sparkrack.node_login.passwords import TRIES, Passwords
from sparkrack.node_login.patience import retry_while_unreachable

if TYPE_CHECKING:
    from sparkrack.node_login.password_shell import PasswordShell

LOGIN_SECONDS = 15.0
"""Seconds for one login, and for the patience with an sshd that accepts none at the moment."""


@dataclass(frozen=True)
class RefusingNode:
    """A node that refuses the key. `keys`: the host keys that were confirmed for it."""

    address: str
    keys: tuple[HostKey, ...]


@dataclass
class PasswordReading:
    """The shells by name, and the reasons for the nodes on which a password was tried in vain."""

    shells: dict[str, NodeShell] = field(default_factory=dict)
    unread_reasons: dict[str, str] = field(default_factory=dict)


class _NoPasswordError(Exception):
    """The operator types no password, or has typed as many as are allowed."""


def may_take_password(why: str) -> bool:
    """Return whether a password may help where the login by key ended with this message of ssh or sudo."""
    if "Permission denied" in why:
        return "password" in why or "keyboard-interactive" in why
    return why.startswith("sudo:")


@contextmanager
def open_password_shells(
    screen: Screen, nodes: Mapping[str, RefusingNode], port: int, user: str
) -> Iterator[PasswordReading]:
    """Ask for one account and one password for these nodes, and log in; the shells are closed after the block.

    Args:
        screen: a terminal.
        nodes: by name.
        port: of their sshd.
        user: the account that is proposed.
    """
    named = ", ".join(nodes)
    screen.warn(printable_line(f"{named}: refused the key; a password, which is not kept, reads them too"))
    account = screen.ask("the account that the first-boot wizard made", user)
    passwords, reading = Passwords(None, _TypedPasswords(screen)), PasswordReading()
    opened: list[PasswordShell] = []
    try:
        for name, node in nodes.items():
            try:
                shell = _log_in(screen, name, node, port, account, passwords)
            except _NoPasswordError:
                continue  # a later node may take the password that an earlier one accepted
            except (BootstrapError, SecretError) as fault:
                reading.unread_reasons[name] = str(fault)
                continue
            opened.append(shell)
            reading.shells[name] = partial(_run_script, name, shell)
        if unread := ", ".join(name for name in nodes if name not in reading.shells):
            screen.warn(
                printable_line(
                    f"{unread}: not read: no version of their driver and no time server of theirs is offered"
                )
            )
        yield reading
    finally:
        for shell in opened:
            shell.close()


class _TypedPasswords:
    """Passwords from the terminal, a bounded number for all nodes together."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._left = TRIES

    def __call__(self, _node: str, account: str) -> SecretStr:
        if not self._left:
            raise _NoPasswordError
        self._left -= 1
        secret = self._screen.hidden_prompt(
            f"password of {printable_line(account)} there, one for all; Enter: none", skippable=True
        )
        if not secret.get_secret_value():
            self._left = 0
            raise _NoPasswordError
        return secret


def _log_in(
    screen: Screen, name: str, node: RefusingNode, port: int, account: str, passwords: Passwords
) -> PasswordShell:
    from sparkrack.node_login.password_shell import open_password_shell  # imports paramiko, which takes long

    for secret in passwords.tries(name, account):
        login = partial(open_password_shell, node.address, port, node.keys, account, secret, LOGIN_SECONDS)
        try:
            shell = retry_while_unreachable(login, LOGIN_SECONDS)
        except WrongPasswordError as wrong:
            screen.warn(printable_line(f"{name}: {wrong}"))
            continue
        except BootstrapError:
            passwords.took(secret)  # it was not judged: the next node may take it
            raise
        passwords.took(secret)
        return shell
    raise BootstrapError(passwords.refused)


def _run_script(name: str, shell: PasswordShell, script: str) -> bytes:
    try:
        return shell.run(script).output
    except BootstrapError as fault:
        raise UnreachableError(name, str(fault)) from None

"""Logins to one node: by our key, else by the password of the account from its first-boot wizard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import SecretStr

from core.model import Node, Rack
from core.ssh.client import ssh_config
from core.ssh.host_keys import HostKey, pin
from core.util.progress import NO_PROGRESS, ProgressObserver
from sparkrack.node_login.errors import BootstrapError, WrongPasswordError, last_line
from sparkrack.node_login.key_shell import KeyShell, RootShellProtocol, ShellResult
from sparkrack.node_login.passwords import Passwords
from sparkrack.node_login.patience import retry_while_unreachable

if TYPE_CHECKING:
    from sparkrack.node_login.password_shell import PasswordShell

_TO_LOG_IN = 15.0
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class NodesContext:
    """What the nodes of one run have in common. `key`: the operator's public key, a line. `account`: gives the name of
    the account to log in as with a password. `folder`: private and short-lived. `timeout`: seconds. `lost`: returns
    why nothing more may be sent, since the run has lost its lock; empty as long as it may. `progress`: observer of each
    node's steps."""

    rack: Rack
    key: str
    account: Callable[[], str]
    passwords: Passwords
    folder: Path
    timeout: float
    say: Callable[[str], None]
    lost: Callable[[], str] = lambda: ""
    progress: ProgressObserver = NO_PROGRESS


@dataclass
class NodeLogin:
    """Login to one node. `trusted`: the host keys that are accepted at first."""

    context: NodesContext
    node: Node
    trusted: tuple[HostKey, ...]

    def __post_init__(self) -> None:
        self._known = self.context.folder / f"{self.node.name}.known_hosts"
        self.believe(self.trusted)

    def believe(self, keys: Iterable[HostKey]) -> None:
        """Accept these host keys from now on, for open connections too."""
        pin(self._known, str(self.node.address), self.context.rack.access.port, tuple(keys))

    def enter(self) -> RootShellProtocol:
        """A root shell. Raises BootstrapError or SecretError; nothing of the node was changed then."""
        shell = self.by_key()
        self.context.progress.step(self.node.name, "log in by key")
        refused = self.patiently(shell.refused)
        if refused is None:
            self.context.say(f"{self.node.name}: logged in as {shell.who}")
            return shell
        self.context.say(f"{self.node.name}: not yet by key: {refused}")
        return self._by_password()

    def by_key(self) -> KeyShell:
        """Return a login that accepts only the trusted keys."""
        rack, name = self.context.rack, self.node.name
        access = rack.access.model_copy(update={"known_hosts": self._known})
        config = self.context.folder / f"{name}.ssh_config"
        config.write_text(ssh_config(rack.model_copy(update={"access": access})), errors="surrogateescape")
        return KeyShell(name, access.user, config)

    def ask(self, root: RootShellProtocol, what: str, script: str) -> bytes:
        """What a script prints. Raises BootstrapError when it fails, or was not sent since the run has lost its lock;
        `what` names its purpose."""

        self.context.progress.step(self.node.name, what)

        def send() -> ShellResult:
            if why := self.context.lost():
                raise BootstrapError(f"{what}: {why}; nothing more is sent")
            return root.run(script)

        done = self.patiently(send)
        if done.code:
            raise BootstrapError(f"{what}: {last_line(done.complaints) or f'it ends with {done.code}'}")
        return done.output

    def patiently(self, attempt: Callable[[], _Result]) -> _Result:
        """Retry while the node accepts no login, until the timeout. Nothing of the attempt was done then."""
        return retry_while_unreachable(attempt, self.context.timeout)

    # claim: bootstrap.first-boot-account
    def _by_password(self) -> RootShellProtocol:
        user = self.context.account()
        for secret in self.context.passwords.tries(self.node.name, user):
            self.context.progress.step(self.node.name, f"log in as {user} by password")
            try:
                root = self.patiently(partial(self._open_login, user, secret))
            except WrongPasswordError as wrong:
                self.context.say(f"{self.node.name}: {wrong}")
                continue
            self.context.passwords.took(secret)
            self.context.say(f"{self.node.name}: logged in as {root.who}")
            return root
        raise BootstrapError(f"{self.context.passwords.refused}; nothing was changed")

    def _open_login(self, user: str, secret: SecretStr) -> PasswordShell:
        from sparkrack.node_login.password_shell import open_password_shell  # imports paramiko, which takes long

        port = self.context.rack.access.port
        return open_password_shell(str(self.node.address), port, self.trusted, user, secret, _TO_LOG_IN)

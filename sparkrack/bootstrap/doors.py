"""The ways into one node: by our key, else by the password of the account that its first-boot wizard made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

from sparkrack.bootstrap.errors import AwayError, ContactError, WrongPasswordError, last_line
from sparkrack.bootstrap.login import ByPassword, by_password
from sparkrack.bootstrap.passwords import Passwords
from sparkrack.bootstrap.session import ByKey, Root
from sparkrack.fleet import Node, Rack
from sparkrack.hostkeys import HostKey, pin
from sparkrack.proof.machines import ssh_config

_PAUSE = 0.5
_TO_LOG_IN = 15.0
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Desk:
    """What the nodes of one run have in common. `key`: the operator's public key, a line. `account`: gives the name of
    the account to log in as with a password. `folder`: private and short-lived. `patience`: seconds."""

    rack: Rack
    key: str
    account: Callable[[], str]
    passwords: Passwords
    folder: Path
    patience: float
    say: Callable[[str], None]


@dataclass
class Doors:
    """How one node is entered. `trusted`: the host keys that it may show at first."""

    desk: Desk
    node: Node
    trusted: tuple[HostKey, ...]

    def __post_init__(self) -> None:
        self._known = self.desk.folder / f"{self.node.name}.known_hosts"
        self.believe(self.trusted)

    def believe(self, keys: Iterable[HostKey]) -> None:
        """These are the host keys that it may show from now on, to doors that are open already too."""
        pin(self._known, str(self.node.address), self.desk.rack.access.port, tuple(keys))

    def enter(self) -> Root:
        """A root shell. Raises ContactError or SecretError; nothing of the node was changed then."""
        door = self.by_key()
        refused = self.patiently(door.refused)
        if refused is None:
            self.desk.say(f"{self.node.name}: logged in as {door.who}")
            return door
        self.desk.say(f"{self.node.name}: not yet by key: {refused}")
        return self._by_password()

    def by_key(self) -> ByKey:
        """A login that believes only what this contact believes."""
        rack, name = self.desk.rack, self.node.name
        access = rack.access.model_copy(update={"known_hosts": self._known})
        config = self.desk.folder / f"{name}.ssh_config"
        config.write_text(ssh_config(rack.model_copy(update={"access": access})), errors="surrogateescape")
        return ByKey(name, access.user, config)

    def ask(self, root: Root, what: str, script: str) -> bytes:
        """What a script prints. Raises ContactError when it fails; `what` says what it was for."""
        done = self.patiently(lambda: root.run(script))
        if done.code:
            raise ContactError(f"{what}: {last_line(done.complaints) or f'it ends with {done.code}'}")
        return done.output

    def patiently(self, attempt: Callable[[], _Result]) -> _Result:
        """Try again while the node lets nobody in, for as long as patience goes: sshd from 9.8 on shuts out whoever has
        failed to log in a few times, for some seconds. Nothing of the attempt was done then."""
        until = time.monotonic() + self.desk.patience
        while True:
            try:
                return attempt()
            except AwayError:
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)

    def _by_password(self) -> Root:
        user = self.desk.account()
        for secret in self.desk.passwords.tries(self.node.name, user):
            try:
                root = self.patiently(partial(self._login, user, secret))
            except WrongPasswordError as wrong:
                self.desk.say(f"{self.node.name}: {wrong}")
                continue
            self.desk.passwords.took(secret)
            self.desk.say(f"{self.node.name}: logged in as {root.who}")
            return root
        raise ContactError(f"{self.desk.passwords.refused}; nothing was changed")

    def _login(self, user: str, secret: SecretStr) -> ByPassword:
        port = self.desk.rack.access.port
        return by_password(str(self.node.address), port, self.trusted, user, secret, _TO_LOG_IN)

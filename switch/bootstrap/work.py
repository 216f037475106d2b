"""What the steps of a first contact have in common: the file, the switch, the sessions, looking and writing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from sparkrack.fleet import Switch
from sparkrack.fleet.edit import Snapshot
from switch.diff import Change
from switch.errors import CheckError, SwitchError
from switch.menus import USER, Menu
from switch.reading import Reading, read
from switch.safemode import RELEASE, TAKE, free, held
from switch.sentences import writes

from .contact import Door, opened
from .needs import Needs, Situation, needs
from .passwords import Password
from .tables import FACTORY_USER, PLACEHOLDER, READ


class KeptError(CheckError):
    """The switch refuses to disable the factory's user."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for.

    address, api_port: where the switch answers now, with its plain API. prefix: the length for its right address.
    admin: the file for a new password of the factory's user; None disables that user. keep_address: the old
    address stays, and the right one need not answer yet. replace: another fingerprint in rack.yaml is overwritten.
    patience: seconds for the right address to answer, and for others to let go of safe mode.
    """

    address: str
    api_port: int = 8728
    prefix: int = 24
    admin: Path | None = None
    keep_address: bool = False
    replace: bool = False
    patience: float = 15.0


@dataclass
class Work:
    """One switch's first contact. `snapshot`: the rack file that `switch` was read from; both follow when the
    fingerprint is written. `say` tells the user what was done."""

    switch: Switch
    snapshot: Snapshot
    wishes: Wishes
    say: Callable[[str], None]
    own: Password
    _doors: list[Door] = field(default_factory=list, init=False)

    @property
    def fallback(self) -> Path:
        """Where the new password of the factory's user is kept when that user cannot be disabled: beside our own, or
        beside rack.yaml where ours is in no file."""
        folder = self.own.ref.file.parent if self.own.ref.file else self.snapshot.path.parent
        return folder / f"{self.switch.name}.{FACTORY_USER}.password"

    @property
    def pinned(self) -> str:
        """The fingerprint that rack.yaml has by now."""
        return self.switch.tls.sha256 if self.switch.tls else PLACEHOLDER

    def pin(self, fingerprint: str) -> None:
        """Write the fingerprint to rack.yaml. Raises RackError."""
        self.snapshot = self.snapshot.put(("switches", self.switch.name, "tls", "sha256"), fingerprint)
        assert self.switch.tls  # noqa: S101 - a file with `tls: false` has no such value to set
        tls = self.switch.tls.model_copy(update={"sha256": fingerprint})
        self.switch = self.switch.model_copy(update={"tls": tls})

    def enter(self, door: Door) -> Door:
        """Use a login from now on."""
        self._doors.append(door)
        self.say(f"logged in as {door}")
        return door

    def open(self, host: str, user: str, password: SecretStr) -> Door:
        """Log in over TLS, to the pinned certificate. Raises SwitchError."""
        door = opened(host, self.switch.port, self.pinned, user, password)
        self._doors.append(door)
        return door

    def prove(self, host: str, user: str, password: Password) -> None:
        """A new session can be had. Raises SwitchError."""
        self.open(host, user, password.get()).line.close()

    def close(self) -> None:
        """End every session. Never raises."""
        for door in self._doors:
            door.line.close()

    def read(self, door: Door, menus: Iterable[Menu] = READ) -> Reading:
        """The switch as it is now."""
        return read(lambda sentence: door.line.talk(*sentence), menus)

    def needs(self, door: Door) -> Needs:
        """What is missing now."""
        wishes = self.wishes
        situation = Situation(
            host=door.host,
            given=wishes.address,
            prefix=wishes.prefix,
            today=datetime.now(UTC).date(),
            stay=wishes.keep_address,
            disable=wishes.admin is None,
        )
        return needs(self.switch, self.read(door), situation)

    def write(self, door: Door, changes: Iterable[Change]) -> None:
        """Carry out changes one by one. The only secret among them is our user's password."""
        for change in changes:
            for write in writes([change]):
                secret = (f"={name}={self.own.get().get_secret_value()}" for name, _ in write.secrets)
                door.line.talk(*write.sentence, *secret)
            self.say(f"{change}")

    def give(self, door: Door, user: str, password: Password) -> None:
        """Set the password of a user that is there."""
        row = self.read(door, [USER]).by_key(USER)[(user,)]
        door.line.talk(f"{USER.path}/set", f"=.id={row['.id']}", f"=password={password.get().get_secret_value()}")
        self.say(f"gave {user} the password of {password}")

    @contextmanager
    def on_trial(self, door: Door) -> Iterator[None]:
        """Safe mode around changes that may cut the way in: unless they are proven before the end, the switch
        takes them back.

        It covers neither certificates nor what a password was (MikroTik manual, 'Configuration management'), so
        those are written outside of it; they come first and take no way in away.
        """
        line = door.line
        # The session of a run that was killed may linger; the switch ends it by itself.
        until(lambda: _free(door), self.wishes.patience)
        free(line)
        line.talk(*TAKE)
        try:
            yield
            held(line)
            line.talk(*RELEASE)
        except KeptError:
            line.back_out()
            raise
        except (SwitchError, CheckError) as fault:
            raise CheckError(f"{fault}{line.back_out()}") from None
        except BaseException:
            line.close()
            raise


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again until it is so, for `seconds`; whether it became so."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def _free(door: Door) -> bool:
    try:
        free(door.line)
    except CheckError:
        return False
    return True

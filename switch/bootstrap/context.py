"""Common state of the steps of a first contact: the file, the switch, the sessions, reading and writing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from core.model import Switch
from core.model.fields import PLAIN_API_PORT
from core.model.yaml_editor import FileSnapshot
from core.routeros.diff import RowChange
from core.routeros.errors import CheckError, SwitchError
from core.routeros.menus import USER, Menu
from core.routeros.reading import SwitchReading, read_switch
from core.routeros.safe_mode import RELEASE, TAKE, free, held
from core.routeros.sentences import writes
from core.util.progress import NO_PROGRESS, ProgressObserver
from switch.bootstrap.first_contact import ServiceOffer, open_session
from switch.bootstrap.menus import FACTORY_USER, PLACEHOLDER, READ
from switch.bootstrap.missing import Missing, Situation, missing
from switch.bootstrap.passwords import Password


class NotSavedError(CheckError):
    """The switch refuses to disable the factory's user."""


@dataclass(frozen=True)
class BootstrapOptions:
    """Options of the user.

    address, api_port: where the switch answers now, with its plain API. prefix: the length for its declared address.
    admin: the file for a new password of the factory's user; None disables that user. keep_address: the old address
    stays, and the declared one need not answer yet. replace: another fingerprint in rack.yaml is overwritten. timeout:
    seconds for the declared address to answer, and for other sessions to release safe mode.
    """

    address: str
    api_port: int = PLAIN_API_PORT
    prefix: int = 24
    admin: Path | None = None
    keep_address: bool = False
    replace: bool = False
    timeout: float = 15.0


@dataclass
class SwitchBootstrapContext:
    """One switch's first contact. `snapshot`: the rack file that `switch` was read from; both follow when the
    fingerprint is written. `say` reports progress to the user. `stopped` returns why nothing more may be sent, for
    example because the run has lost its lock. `progress`: observer of its steps."""

    switch: Switch
    snapshot: FileSnapshot
    options: BootstrapOptions
    say: Callable[[str], None]
    own: Password
    stopped: Callable[[], str] = lambda: ""
    progress: ProgressObserver = NO_PROGRESS
    _sessions: list[ServiceOffer] = field(default_factory=list, init=False)

    @property
    def fallback(self) -> Path:
        """File for the new password of the factory's user when that user cannot be disabled: beside our own, or beside
        rack.yaml if ours is in no file.
        """
        folder = self.own.ref.file.parent if self.own.ref.file else self.snapshot.path.parent
        return folder / f"{self.switch.name}.{FACTORY_USER}.password"

    @property
    def pinned(self) -> str:
        """The fingerprint that rack.yaml has by now."""
        return self.switch.tls.sha256 if self.switch.tls else PLACEHOLDER

    def pin(self, fingerprint: str) -> None:
        """Write the fingerprint to rack.yaml. Raises ConfigError."""
        self.snapshot = self.snapshot.put(("switches", self.switch.name, "tls", "sha256"), fingerprint)
        assert self.switch.tls  # noqa: S101 - a file with `tls: false` has no such value to set
        tls = self.switch.tls.model_copy(update={"sha256": fingerprint})
        self.switch = self.switch.model_copy(update={"tls": tls})

    def step(self, activity: str) -> None:
        """Report what begins now, as a verb phrase."""
        self.progress.step(self.switch.name, activity)

    def enter(self, session: ServiceOffer) -> ServiceOffer:
        """Use a login from now on."""
        self.say(f"logged in as {session}")
        return self._keep_session(session)

    def open(self, host: str, user: str, password: SecretStr) -> ServiceOffer:
        """Log in over TLS, to the pinned certificate. Raises SwitchError."""
        return self._keep_session(open_session(host, self.switch.port, self.pinned, user, password))

    def _keep_session(self, session: ServiceOffer) -> ServiceOffer:
        self._sessions.append(session)
        session.line.stopped = self.stopped
        return session

    def prove(self, host: str, user: str, password: Password) -> None:
        """A new session can be had. Raises SwitchError."""
        self.open(host, user, password.get()).line.close()

    def close(self) -> None:
        """End every session. Never raises."""
        for session in self._sessions:
            session.line.close()

    def read(self, session: ServiceOffer, menus: Iterable[Menu] = READ) -> SwitchReading:
        """Return the current state of the switch."""
        return read_switch(lambda sentence: session.line.talk(*sentence), menus)

    def needs(self, session: ServiceOffer) -> Missing:
        """Return what is missing now."""
        options = self.options
        situation = Situation(
            host=session.host,
            given=options.address,
            prefix=options.prefix,
            today=datetime.now(UTC).date(),
            stay=options.keep_address,
            disable=options.admin is None,
        )
        return missing(self.switch, self.read(session), situation)

    def write(self, session: ServiceOffer, changes: Iterable[RowChange]) -> None:
        """Carry out changes one by one. The only secret among them is our user's password."""
        for change in changes:
            for write in writes([change]):
                secret = (f"={name}={self.own.get().get_secret_value()}" for name, _ in write.secrets)
                session.line.talk(*write.sentence, *secret)
            self.say(f"{change}")

    def give(self, session: ServiceOffer, user: str, password: Password) -> None:
        """Set the password of a user that is there."""
        row = self.read(session, [USER]).by_key(USER)[(user,)]
        session.line.talk(f"{USER.path}/set", f"=.id={row['.id']}", f"=password={password.get().get_secret_value()}")
        self.say(f"gave {user} the password of {password}")

    @contextmanager
    def in_safe_mode(self, session: ServiceOffer) -> Iterator[None]:
        """Hold safe mode around changes that may cut the login: unless they are verified before the end, the switch
        rolls them back.

        It covers neither certificates nor old passwords (MikroTik manual, 'Configuration management'), so those are
        written outside of it; they come first and remove no login.
        """
        line = session.line
        # The session of a run that was killed may linger; the switch ends it by itself.
        until(lambda: _name_is_free(session), self.options.timeout)
        free(line)
        line.talk(*TAKE)
        try:
            yield
            held(line)
            line.talk(*RELEASE)
        except NotSavedError:
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


def _name_is_free(session: ServiceOffer) -> bool:
    try:
        free(session.line)
    except CheckError:
        return False
    return True

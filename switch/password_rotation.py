"""Rotation of the password of our own user on the switch, verified before it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.model import Switch
from core.routeros.errors import CheckError, LoginError, RefusedError, SwitchError
from core.routeros.menus import BONDING, BRIDGE, ETHERNET, USER, Sentence
from core.routeros.reading import read_switch
from switch.bootstrap.first_contact import ServiceOffer, open_session
from switch.bootstrap.menus import PLACEHOLDER
from switch.bootstrap.passwords import Password
from switch.preconditions import blockers


@dataclass
class PasswordRotation:
    """One rotation: from the password that rack.yaml refers to now, to `new`, which is generated if it does not exist.

    The new one is on this machine's disk before the switch has it, and the old one stays in its place. So after an
    interruption one of the two is valid, and the same call finds out which.
    """

    switch: Switch
    new: Password
    say: Callable[[str], None]
    stopped: Callable[[], str] = lambda: ""
    """Returns why nothing more may be sent, for example because the run has lost its lock. The old password is set
    again even then."""

    def run(self) -> None:
        """Do what is missing. Raises RefusedError before anything is written; SwitchError, CheckError or SecretError,
        after which one of the two passwords is right."""
        pinned = self.switch.tls.sha256 if self.switch.tls else PLACEHOLDER
        if pinned == PLACEHOLDER:
            raise RefusedError(("rack.yaml pins no certificate, and a password is sent to a pinned one only",))
        old = Password(self.switch.password)
        if old.ref == self.new.ref:
            raise RefusedError((f"rack.yaml refers to {self.new} already; name a file for the new password",))
        if self.new.there:
            self.new.get()
        try:
            session = self._prove_login(pinned, old)
        except LoginError:
            if not self.new.there:
                raise
            self._prove_login(pinned, self.new).line.close()
            self.say(f"has the password of {self.new} already")
            return
        try:
            self._set_password(session, pinned, old)
        finally:
            session.line.close()

    def _set_password(self, session: ServiceOffer, pinned: str, old: Password) -> None:
        reading = read_switch(lambda sentence: session.line.talk(*sentence), (ETHERNET, BONDING, BRIDGE, USER))
        if why := blockers(self.switch, reading):
            raise RefusedError(why)
        if self.new.make():
            self.say(f"made a password: {self.new}")
        row = reading.by_key(USER)[(self.switch.user,)]
        session.line.talk(*_password_sentence(row[".id"], self.new))
        try:
            self._prove_login(pinned, self.new).line.close()
        except SwitchError as fault:
            # This session was there before and is still let write; another one could not be had.
            session.line.revert(*_password_sentence(row[".id"], old))
            raise CheckError(f"the new password does not let us in ({fault}); the old one is set again") from None
        self.say(f"{self.switch.user} has the password of {self.new}, proven by a new login")

    def _prove_login(self, pinned: str, password: Password) -> ServiceOffer:
        session = open_session(
            str(self.switch.address), self.switch.port, pinned, self.switch.user, password.ref.resolve()
        )
        session.line.stopped = self.stopped
        return session


def _password_sentence(row: str, password: Password) -> Sentence:
    """Gives the user in this row a password."""
    return (f"{USER.path}/set", f"=.id={row}", f"=password={password.ref.resolve().get_secret_value()}")

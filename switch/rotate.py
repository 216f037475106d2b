"""A new password for our own user on the switch, proven before anybody relies on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkrack.fleet import Switch
from switch.bootstrap.contact import Door, opened
from switch.bootstrap.passwords import Password
from switch.bootstrap.tables import PLACEHOLDER
from switch.errors import CheckError, LoginError, RefusedError, SwitchError
from switch.gate import refusals
from switch.menus import BRIDGE, ETHERNET, USER
from switch.reading import read


@dataclass
class Rotation:
    """One rotation: from the password that rack.yaml refers to now, to `new`, which is made if it is not there.

    The new one is on this machine's disk before the switch has it, and the old one stays where it is. So whenever this
    is cut off one of the two opens the switch, and the same call finds out which.
    """

    switch: Switch
    new: Password
    say: Callable[[str], None]

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
            door = self._login(pinned, old)
        except LoginError:
            if not self.new.there:
                raise
            self._login(pinned, self.new).line.close()
            self.say(f"has the password of {self.new} already")
            return
        try:
            self._set(door, pinned, old)
        finally:
            door.line.close()

    def _set(self, door: Door, pinned: str, old: Password) -> None:
        reading = read(lambda sentence: door.line.talk(*sentence), (ETHERNET, BRIDGE, USER))
        if why := refusals(self.switch, reading):
            raise RefusedError(why)
        if self.new.make():
            self.say(f"made a password: {self.new}")
        row = reading.by_key(USER)[(self.switch.user,)]
        self._write(door, row[".id"], self.new)
        try:
            self._login(pinned, self.new).line.close()
        except SwitchError as fault:
            # This session was there before and is still let write; another one could not be had.
            self._write(door, row[".id"], old)
            raise CheckError(f"the new password does not let us in ({fault}); the old one is set again") from None
        self.say(f"{self.switch.user} has the password of {self.new}, proven by a new login")

    def _login(self, pinned: str, password: Password) -> Door:
        return opened(str(self.switch.address), self.switch.port, pinned, self.switch.user, password.ref.resolve())

    def _write(self, door: Door, row: str, password: Password) -> None:
        secret = password.ref.resolve().get_secret_value()
        door.line.talk(f"{USER.path}/set", f"=.id={row}", f"=password={secret}")

"""The way from the box into the rack, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import SecretStr

from sparkrack.fleet import SecretRef
from switch.errors import CheckError, RefusedError
from switch.gate import refusals
from switch.menus import RESOURCE, ROUTERBOARD, USER

from .certificates import choose
from .certify import certify, secured
from .contact import Contact, Door
from .passwords import Password
from .steps import close, hand_over, move, renew
from .tables import FACTORY_USER, GATE, PLACEHOLDER
from .work import Work


@dataclass
class Bootstrap:
    """A switch's first contact. `ask` fetches the password of the factory's user; it is called once at most,
    and not at all when our own user is let in already."""

    work: Work
    ask: Callable[[], SecretStr]
    warned: bool = field(default=False, init=False)
    """Whether the switch is ready but for the factory's user, which is enabled with a new password."""

    def run(self, *, dry: bool = False) -> bool:
        """Bring what is missing; with `dry` only tell it. Gives whether the switch is ready now.

        Raises RefusedError before anything is written; SwitchError, CheckError, UnreadableError, SecretError
        or RackError at the step that failed. What was done until then is found again by the next run.
        """
        try:
            return self._run(dry)
        finally:
            self.work.close()

    def _run(self, dry: bool) -> bool:
        work = self.work
        self._check()
        asked: list[SecretStr] = []

        def sticker() -> SecretStr:
            asked.append(self.ask())
            return asked[-1]

        wishes = work.wishes
        contact = Contact(work.switch, wishes.address, wishes.api_port, wishes.replace, work.own, sticker)
        door = work.enter(contact.find())
        self._judge(door)
        if dry:
            missing = work.needs(door).lines
            for line in missing:
                work.say(line)
            return not missing
        certify(work, door)
        if door.user == work.switch.user:
            work.write(door, work.needs(door).people)
        else:
            door = hand_over(work, secured(work, door, asked[-1]), refused=contact.refused)
        door = move(work, door)
        if wishes.admin:
            renew(work, door, Password(SecretRef(file=wishes.admin)))
        self.warned = not close(work, door)
        kept = {str(change) for change in work.needs(door).doors if change.menu is USER} if self.warned else set()
        if left := [line for line in work.needs(door).lines if line not in kept]:
            raise CheckError(f"still missing: {'; '.join(left)}")
        return True

    def _check(self) -> None:
        """Everything that can be refused without a connection."""
        switch = self.work.switch
        if switch.tls is False:
            right = f'write tls: {{sha256: "{PLACEHOLDER}"}}, it is filled in'
            raise RefusedError((f"rack.yaml asks for the plain API (tls: false); {right}",))
        if switch.user == FACTORY_USER:
            raise RefusedError((f"user is {FACTORY_USER}, whom everybody knows; name one of its own, like sparkrack",))
        if self.work.own.there:
            self.work.own.get()

    def _judge(self, door: Door) -> None:
        """The identity gate: nothing is written to another unit than rack.yaml means."""
        work = self.work
        reading = work.read(door, GATE)
        reasons = refusals(work.switch, reading)
        if not reasons and work.pinned != PLACEHOLDER and not work.wishes.replace:
            found = choose(reading, work.pinned).fingerprint
            if found != work.pinned:
                text = f"rack.yaml pins certificate {work.pinned}, and the switch has {found or 'none'}"
                reasons = (f"{text}; if it was reset or replaced, say --replace-fingerprint",)
        if reasons:
            raise RefusedError(reasons)
        board, system = reading.only(ROUTERBOARD), reading.only(RESOURCE)
        work.say(f"it is {board.get('model')}, serial {board.get('serial-number')}, RouterOS {system.get('version')}")

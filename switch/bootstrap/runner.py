"""The way from the box into the rack, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.model import SecretRef
from core.routeros.errors import CheckError, RefusedError
from core.routeros.menus import RESOURCE, ROUTERBOARD, USER
from switch.advisories import compromised, release_faults, release_notes
from switch.bootstrap.certificate_setup import certify, secured
from switch.bootstrap.certificates import choose
from switch.bootstrap.context import SwitchBootstrapContext
from switch.bootstrap.first_contact import FirstContact, ServiceOffer
from switch.bootstrap.menus import FACTORY_USER, GATE, PLACEHOLDER
from switch.bootstrap.passwords import FactoryPassword, Password
from switch.bootstrap.steps import close, hand_over, move, renew
from switch.preconditions import blockers


@dataclass
class SwitchBootstrap:
    """First contact with a switch. `sticker`: the password of the factory's user, which is not fetched when our own
    user can log in already.
    """

    work: SwitchBootstrapContext
    sticker: FactoryPassword
    warned: bool = field(default=False, init=False)
    """Whether the switch is ready except for the factory's user, which is enabled with a new password."""
    faults: tuple[str, ...] = field(default=(), init=False)
    """Weaknesses of its release by which it can be taken over."""

    def run(self, *, dry: bool = False) -> bool:
        """Create what is missing; with `dry` only report it. Returns whether the switch is ready now.

        Raises RefusedError before anything is written; SwitchError, CheckError, UnreadableError, SecretError or
        ConfigError at the step that failed. The next run detects the completed steps.
        """
        try:
            return self._run_steps(dry)
        finally:
            self.work.close()

    def _run_steps(self, dry: bool) -> bool:
        work = self.work
        self._check_without_connection()
        options = work.options
        contact = FirstContact(work.switch, options.address, options.api_port, options.replace, work.own, self.sticker)
        work.step("find its address and log in")
        session = work.enter(contact.find())
        work.step("read its identity")
        self._check_identity(session)
        if dry:
            work.step("read what is missing")
            missing = work.needs(session).lines
            for line in missing:
                work.say(line)
            return not missing
        work.step("set up its certificate")
        certify(work, session)
        work.step(f"set up the user {work.switch.user}")
        if session.user == work.switch.user:
            work.write(session, work.needs(session).people)
        else:
            session = hand_over(work, secured(work, session, self.sticker.accepted), refused=contact.refused)
        work.step(f"set its address {work.switch.address}")
        session = move(work, session)
        work.step(f"close the logins of {FACTORY_USER}")
        # claim: switch.users.last-full
        if options.admin:
            renew(work, session, Password(SecretRef(file=options.admin)))
        self.warned = not close(work, session)
        work.step("verify the result")
        kept = {str(change) for change in work.needs(session).logins if change.menu is USER} if self.warned else set()
        if left := [line for line in work.needs(session).lines if line not in kept]:
            raise CheckError(f"still missing: {'; '.join(left)}")
        return True

    def _check_without_connection(self) -> None:
        """Everything that can be refused without a connection."""
        switch = self.work.switch
        if switch.tls is False:
            right = f'write tls: {{sha256: "{PLACEHOLDER}"}}, it is filled in'
            raise RefusedError((f"rack.yaml asks for the plain API (tls: false); {right}",))
        if switch.user == FACTORY_USER:
            raise RefusedError((f"user is {FACTORY_USER}, which every unit has; name another user, like sparkrack",))
        if self.work.own.there:
            self.work.own.get()

    def _check_identity(self, session: ServiceOffer) -> None:
        """The identity gate: nothing is written to another unit than rack.yaml means."""
        work = self.work
        reading = work.read(session, GATE)
        reasons = (*blockers(work.switch, reading), *compromised(work.switch, reading))
        if not reasons and work.pinned != PLACEHOLDER and not work.options.replace:
            found = choose(reading, work.pinned).fingerprint
            if found != work.pinned:
                text = f"rack.yaml pins certificate {work.pinned}, and the switch has {found or 'none'}"
                reasons = (f"{text}; if it was reset or replaced, pass --replace-fingerprint",)
        if reasons:
            raise RefusedError(reasons)
        board, system = reading.only(ROUTERBOARD), reading.only(RESOURCE)
        work.say(f"it is {board.get('model')}, serial {board.get('serial-number')}, RouterOS {system.get('version')}")
        version = system.get("version", "")
        self.faults = release_faults(work.switch, version)
        for line in (*(f"fault: {text}" for text in self.faults), *release_notes(work.switch, version)):
            work.say(line)

"""The steps after the certificate: our user, the declared address, and the factory logins."""

from __future__ import annotations

import time

from core.model import SecretRef
from core.routeros.diff import RowChange
from core.routeros.errors import CertificateError, CheckError, LoginError, SentenceError, SwitchError
from core.routeros.menus import USER
from switch.bootstrap.context import NotSavedError, SwitchBootstrapContext
from switch.bootstrap.first_contact import ServiceOffer
from switch.bootstrap.menus import FACTORY_USER
from switch.bootstrap.passwords import BITS, Password


def hand_over(work: SwitchBootstrapContext, session: ServiceOffer, *, refused: bool) -> ServiceOffer:
    """Create our own user with its group and password, and verify its login.

    refused: its password was tried already, without success. Raises SwitchError, SecretError.
    """
    if work.own.make():
        work.say(f"made a password of {BITS} bits: {work.own}")
    user = work.switch.user
    there = (user,) in work.read(session, [USER]).by_key(USER)
    work.write(session, work.needs(session).people)
    if there and not refused:
        try:
            return work.enter(work.open(session.host, user, work.own.get()))
        except LoginError:
            refused = True
    if there:
        work.give(session, user, work.own)
    return work.enter(work.open(session.host, user, work.own.get()))


def move(work: SwitchBootstrapContext, session: ServiceOffer) -> ServiceOffer:
    """Add the declared address beside the old one; the old one is removed once a session over the declared one can
    remove it. Raises CheckError, SwitchError.
    """
    right = str(work.switch.address)
    if session.host != right:
        far: ServiceOffer | None = None
        with work.in_safe_mode(session):
            work.write(session, work.needs(session).address)
            work.prove(session.host, work.switch.user, work.own)
            far = _reach_service(work, right)
        if far is None and not work.options.keep_address:
            raise CheckError(
                f"{right} is set and does not answer from here; {session.host} stays. Run again from a machine of that "
                f"network with --address {right}, or pass --keep-address"
            )
        if far is None:
            work.say(f"{right} does not answer from here; {session.host} stays")
            return session
        session = work.enter(far)
    gone = work.needs(session).old
    if gone:
        with work.in_safe_mode(session):
            work.write(session, gone)
            work.prove(right, work.switch.user, work.own)
    return session


def _reach_service(work: SwitchBootstrapContext, host: str) -> ServiceOffer | None:
    work.step(f"wait for an answer of {host}, at most {work.options.timeout:g} s")
    end = time.monotonic() + work.options.timeout
    while True:
        try:
            return work.open(host, work.switch.user, work.own.get())
        except CertificateError as fault:
            raise CheckError(f"{host} belongs to something else: {fault}") from None
        except LoginError:
            raise
        except SwitchError:
            if time.monotonic() > end:
                return None
            time.sleep(0.5)


def renew(work: SwitchBootstrapContext, session: ServiceOffer, password: Password) -> None:
    """Set a new password for the factory's user, verified by its login. Raises SwitchError, SecretError."""
    if (FACTORY_USER,) not in work.read(session, [USER]).by_key(USER):
        return
    if password.make():
        work.say(f"made a password of {BITS} bits: {password}")
    else:
        try:
            work.prove(session.host, FACTORY_USER, password)
        except LoginError:
            pass
        else:
            return
    work.give(session, FACTORY_USER, password)
    work.prove(session.host, FACTORY_USER, password)


def close(work: SwitchBootstrapContext, session: ServiceOffer) -> bool:
    """Disable the factory logins, while another session verifies that ours works; False when the factory's user could
    not be disabled and has a new password instead. Raises CheckError, SwitchError, SecretError.

    Disabling the user is tried separately and first: a refusal within the same safe mode would roll the other changes
    back.
    """
    users = tuple(change for change in work.needs(session).logins if change.menu is USER)
    disabled = _disable_factory_user(work, session, users)
    if not disabled:
        renew(work, session, Password(SecretRef(file=work.fallback)))
    changes = tuple(change for change in work.needs(session).logins if change.menu is not USER)
    if changes:
        with work.in_safe_mode(session):
            work.write(session, changes)
            work.prove(session.host, work.switch.user, work.own)
    return disabled


def _disable_factory_user(work: SwitchBootstrapContext, session: ServiceOffer, changes: tuple[RowChange, ...]) -> bool:
    """Disable the factory's user. RouterOS keeps at least one user with full access (MikroTik manual, 'User'), and ours
    is in a group of its own; whether disabling is refused for that is not documented."""
    try:
        if changes:
            with work.in_safe_mode(session):
                for change in changes:
                    try:
                        work.write(session, (change,))
                    except SentenceError as fault:
                        raise NotSavedError(str(fault)) from None
                work.prove(session.host, work.switch.user, work.own)
    except NotSavedError as kept:
        reason = f"the switch refuses to disable it ({kept}), so it gets a new password"
        work.say(f"warning: {FACTORY_USER} stays enabled: {reason}")
        return False
    return True

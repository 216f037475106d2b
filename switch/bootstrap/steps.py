"""The steps after the certificate: our user, the right address, and the ways in that came with the switch."""

from __future__ import annotations

import time

from sparkrack.fleet import SecretRef
from switch.diff import Change
from switch.errors import CertificateError, CheckError, LoginError, SentenceError, SwitchError
from switch.menus import USER

from .contact import Door
from .passwords import BITS, Password
from .tables import FACTORY_USER
from .work import KeptError, Work


def hand_over(work: Work, door: Door, *, refused: bool) -> Door:
    """Our own user with its group and password, and the login that proves it.

    refused: its password was tried already, in vain. Raises SwitchError, SecretError.
    """
    if work.own.make():
        work.say(f"made a password of {BITS} bits: {work.own}")
    user = work.switch.user
    there = (user,) in work.read(door, [USER]).by_key(USER)
    work.write(door, work.needs(door).people)
    if there and not refused:
        try:
            return work.enter(work.open(door.host, user, work.own.get()))
        except LoginError:
            refused = True
    if there:
        work.give(door, user, work.own)
    return work.enter(work.open(door.host, user, work.own.get()))


def move(work: Work, door: Door) -> Door:
    """The right address beside the old one; the old one goes once a session over the right one is there to
    take it away. Raises CheckError, SwitchError."""
    right = str(work.switch.address)
    if door.host != right:
        far: Door | None = None
        with work.on_trial(door):
            work.write(door, work.needs(door).address)
            work.prove(door.host, work.switch.user, work.own)
            far = _reached(work, right)
        if far is None and not work.wishes.keep_address:
            raise CheckError(
                f"{right} is set and does not answer from here; {door.host} stays. Run again from a machine of that "
                f"network with --address {right}, or say --keep-address"
            )
        if far is None:
            work.say(f"{right} does not answer from here; {door.host} stays")
            return door
        door = work.enter(far)
    gone = work.needs(door).old
    if gone:
        with work.on_trial(door):
            work.write(door, gone)
            work.prove(right, work.switch.user, work.own)
    return door


def _reached(work: Work, host: str) -> Door | None:
    end = time.monotonic() + work.wishes.patience
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


def renew(work: Work, door: Door, password: Password) -> None:
    """A new password for the factory's user, proven by its login. Raises SwitchError, SecretError."""
    if (FACTORY_USER,) not in work.read(door, [USER]).by_key(USER):
        return
    if password.make():
        work.say(f"made a password of {BITS} bits: {password}")
    else:
        try:
            work.prove(door.host, FACTORY_USER, password)
        except LoginError:
            pass
        else:
            return
    work.give(door, FACTORY_USER, password)
    work.prove(door.host, FACTORY_USER, password)


def close(work: Work, door: Door) -> bool:
    """Shut the ways in that came with the switch, while another session proves that ours is open; False when the
    factory's user could not be disabled and has a new password instead. Raises CheckError, SwitchError, SecretError.

    It is tried by itself and first: refused within the same safe mode, it would take the other changes along.
    """
    users = tuple(change for change in work.needs(door).doors if change.menu is USER)
    disabled = _disabled(work, door, users)
    if not disabled:
        renew(work, door, Password(SecretRef(file=work.fallback)))
    changes = tuple(change for change in work.needs(door).doors if change.menu is not USER)
    if changes:
        with work.on_trial(door):
            work.write(door, changes)
            work.prove(door.host, work.switch.user, work.own)
    return disabled


def _disabled(work: Work, door: Door, changes: tuple[Change, ...]) -> bool:
    """Disable the factory's user. RouterOS keeps at least one user with full access (MikroTik manual, 'User'), and ours
    is in a group of its own; whether disabling is refused for that is not documented."""
    try:
        if changes:
            with work.on_trial(door):
                for change in changes:
                    try:
                        work.write(door, (change,))
                    except SentenceError as fault:
                        raise KeptError(str(fault)) from None
                work.prove(door.host, work.switch.user, work.own)
    except KeptError as kept:
        told = f"the switch refuses to disable it ({kept}), so it gets a new password"
        work.say(f"warning: {FACTORY_USER} stays enabled: {told}")
        return False
    return True

"""The first step: a certificate of the switch's own, shown by its API, proven, and pinned in rack.yaml."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import SecretStr

from switch.errors import CheckError

from .certificates import DAYS, SIZE, fingerprint, sign, template
from .contact import Door, shown
from .needs import Needs
from .tables import CERTIFICATE, CLOCK
from .work import Work, until

SIGN_SECONDS = 90.0
"""How long making a key may take; seconds are usual (inferred)."""


def certify(work: Work, door: Door) -> None:
    """Afterwards api-ssl shows the certificate that rack.yaml pins. Raises CheckError, SwitchError or RackError.

    The file is written as soon as the fingerprint is proven: a run that is cut off later then comes back over
    TLS, and secrets that stay are never sent in the clear.
    """
    found = work.needs(door)
    if found.clock:
        now = datetime.now(UTC)
        door.line.talk(f"{CLOCK.path}/set", f"=date={now:%Y-%m-%d}", f"=time={now:%H:%M:%S}")
        work.say(f"set the clock, which said {found.clock}")
    if not found.certificate.fingerprint:
        _make(work, door, found)
        found = work.needs(door)
    work.write(door, found.service)
    wanted = found.certificate.fingerprint
    until(lambda: shown(door.host, work.switch.port) == wanted, work.wishes.patience)
    seen = shown(door.host, work.switch.port)
    if seen != wanted:
        raise CheckError(
            f"the switch says its certificate is {wanted}, and {door.host}:{work.switch.port} shows {seen or 'none'}; "
            "is api-ssl limited to other addresses, or is something in between?"
        )
    work.say(f"api-ssl shows certificate {found.certificate.name}, the one the switch says it has: {wanted}")
    if wanted != work.pinned:
        work.pin(wanted)
        work.say(f"wrote that fingerprint to {work.snapshot.path}")


def _make(work: Work, door: Door, found: Needs) -> None:
    name = found.certificate.name
    if not found.certificate.template:
        switch = work.switch
        door.line.talk(*template(name, switch.identity or switch.name, str(switch.address)))
    door.line.talk(*sign(name))

    def signed() -> bool:
        # Found by name: the template goes when the certificate comes (MikroTik manual, 'Certificates').
        return bool(fingerprint(work.read(door, [CERTIFICATE]).by_key(CERTIFICATE).get((name,), {})))

    if not until(signed, SIGN_SECONDS):
        raise CheckError(f"certificate {name} is not signed after {SIGN_SECONDS:.0f} s; run again")
    work.say(f"made certificate {name} on the switch: RSA {SIZE}, good for {DAYS // 365} years")


def secured(work: Work, door: Door, password: SecretStr) -> Door:
    """The same login over the pinned certificate."""
    return door if door.secure else work.enter(work.open(door.host, door.user, password))

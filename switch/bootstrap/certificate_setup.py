"""The first step: a certificate of the switch, presented by its API, verified, and pinned in rack.yaml."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import SecretStr

from core.routeros.errors import CheckError
from switch.bootstrap.certificates import DAYS, SIZE, fingerprint, sign, template
from switch.bootstrap.context import SwitchBootstrapContext, until
from switch.bootstrap.first_contact import ServiceOffer, offered_services
from switch.bootstrap.menus import CERTIFICATE, CLOCK
from switch.bootstrap.missing import Missing

SIGN_SECONDS = 90.0
"""Seconds for the generation of a key; a few are usual (inferred)."""


def certify(work: SwitchBootstrapContext, session: ServiceOffer) -> None:
    """Make api-ssl present the certificate that rack.yaml pins. Raises CheckError, SwitchError or ConfigError.

    The file is written as soon as the fingerprint is verified: after a later interruption the next run connects over
    TLS, and lasting secrets are never sent unencrypted.
    """
    found = work.needs(session)
    if found.clock:
        now = datetime.now(UTC)
        session.line.talk(f"{CLOCK.path}/set", f"=date={now:%Y-%m-%d}", f"=time={now:%H:%M:%S}")
        work.say(f"set the clock, which was at {found.clock}")
    if not found.certificate.fingerprint:
        _make_certificate(work, session, found)
        found = work.needs(session)
    work.write(session, found.service)
    wanted = found.certificate.fingerprint
    work.step("wait until api-ssl shows its certificate")
    until(lambda: offered_services(session.host, work.switch.port) == wanted, work.options.timeout)
    seen = offered_services(session.host, work.switch.port)
    if seen != wanted:
        raise CheckError(
            f"the switch reports certificate {wanted}, and {session.host}:{work.switch.port} shows {seen or 'none'}; "
            "is api-ssl limited to other addresses, or is something in between?"
        )
    work.say(f"api-ssl shows certificate {found.certificate.name}, as the switch reports: {wanted}")
    if wanted != work.pinned:
        work.pin(wanted)
        work.say(f"wrote that fingerprint to {work.snapshot.path}")


def _make_certificate(work: SwitchBootstrapContext, session: ServiceOffer, found: Missing) -> None:
    name = found.certificate.name
    if not found.certificate.template:
        switch = work.switch
        session.line.talk(*template(name, switch.identity or switch.name, str(switch.address)))
    work.step(f"wait until it has signed its certificate, at most {SIGN_SECONDS:.0f} s")
    session.line.talk(*sign(name))

    def signed() -> bool:
        # Found by name: the template goes when the certificate comes (MikroTik manual, 'Certificates').
        return bool(fingerprint(work.read(session, [CERTIFICATE]).by_key(CERTIFICATE).get((name,), {})))

    if not until(signed, SIGN_SECONDS):
        raise CheckError(f"certificate {name} is not signed after {SIGN_SECONDS:.0f} s; run again")
    work.say(f"made certificate {name} on the switch: RSA {SIZE}, good for {DAYS // 365} years")


def secured(work: SwitchBootstrapContext, session: ServiceOffer, password: SecretStr) -> ServiceOffer:
    """The same login over the pinned certificate."""
    return session if session.secure else work.enter(work.open(session.host, session.user, password))

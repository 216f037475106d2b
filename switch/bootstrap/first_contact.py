"""Access to a switch before it is in its declared state: its identity, and the login that it accepts."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from core.routeros.api import ApiSession
from core.routeros.errors import LoginError, RefusedError, SwitchError
from core.routeros.session import SessionConnection
from switch.bootstrap.menus import FACTORY_USER, PLACEHOLDER

if TYPE_CHECKING:
    from pydantic import SecretStr

    from core.model import Switch
    from switch.bootstrap.passwords import FactoryPassword, Password

SHOW_SECONDS = 5.0
_RESET = "if this switch was reset or replaced, pass --replace-fingerprint"


@dataclass(frozen=True)
class ServiceOffer:
    """A login that works: a line to the switch, at which address, as whom, and whether it is encrypted."""

    line: SessionConnection
    host: str
    user: str
    secure: bool

    def __str__(self) -> str:
        return f"{self.user} at {self.host} over {'api-ssl' if self.secure else 'the plain API'}"


def offered_services(host: str, port: int) -> str | None:
    """The fingerprint of the certificate that a TLS port shows; None when there is no TLS to be had. Nothing
    is sent to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), SHOW_SECONDS) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            return hashlib.sha256(wrapped.getpeercert(binary_form=True) or b"").hexdigest()
    except OSError:
        return None


def answers(host: str, port: int) -> bool:
    """Return whether a machine answers at a port; one that refuses the connection does."""
    try:
        socket.create_connection((host, port), SHOW_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def open_session(host: str, port: int, tls: str | None, user: str, password: SecretStr) -> ServiceOffer:
    """Log in. Raises SwitchError; LoginError when the password is not accepted."""
    make = partial(ApiSession, host, port, tls=tls, user=user, password=password)
    line = SessionConnection(make, lambda _text: None)
    line.connect()
    return ServiceOffer(line, host, user, tls is not None)


@dataclass
class FirstContact:
    """Finds the first working endpoint and login. Our own password is tried once in any case.

    `given`: the address named by the user, with the port of its plain API. `own`: our user's password. `sticker`:
    that of the factory's user. `refused` becomes True when our user's login is refused.
    """

    switch: Switch
    given: str
    api_port: int
    replace: bool
    own: Password
    sticker: FactoryPassword
    refused: bool = False

    def find(self) -> ServiceOffer:
        """The best login there is: ours over the pinned certificate, else the factory's over it, else the
        factory's over the plain API. Raises RefusedError, SwitchError or SecretError."""
        pinned = self.switch.tls.sha256 if self.switch.tls else PLACEHOLDER
        for host in self._possible_hosts(pinned):
            found = offered_services(host, self.switch.port)
            if found == pinned:
                return self._open_pinned(host, pinned)
            if found and host == self.given and pinned != PLACEHOLDER and not self.replace:
                raise RefusedError((f"the switch shows certificate {found}, pinned is {pinned}; {_RESET}",))
        return self._open_plain(found)

    def _possible_hosts(self, pinned: str) -> Iterator[str]:
        """Yield the addresses where it may answer; an earlier run may have moved it already."""
        right = str(self.switch.address)
        if pinned != PLACEHOLDER and right != self.given:
            yield right
        yield self.given

    def _open_pinned(self, host: str, pinned: str) -> ServiceOffer:
        if self.own.there:
            try:
                return open_session(host, self.switch.port, pinned, self.switch.user, self.own.get())
            except LoginError:
                self.refused = True
        return self.sticker.log_in(partial(open_session, host, self.switch.port, pinned, FACTORY_USER))

    def _open_plain(self, found: str | None) -> ServiceOffer:
        try:
            with socket.create_connection((self.given, self.api_port), SHOW_SECONDS):
                pass
        except OSError as fault:
            # Checked before the password, so that it is not typed for nothing.
            if found:
                text = (
                    f"the plain API of {self.given} is off, and rack.yaml does not pin the certificate that api-ssl "
                    f"shows, {found}: compare it with /certificate/print on the switch's console and write it there"
                )
                raise RefusedError((text,)) from None
            place = f"{self.given} ({self.api_port}, {self.switch.port})"
            raise SwitchError(f"nothing answers at {place}: {fault.strerror or fault}") from None
        return self.sticker.log_in(partial(open_session, self.given, self.api_port, None, FACTORY_USER))

"""One session with a RouterOS switch over its binary API: a thin adapter around routeros-api.

The library opens the socket, logs in and speaks the protocol. What it gets wrong for this use is put right
here: it leaves Nagle's algorithm on (each word is a packet, 44 ms a call), it gives up after 15 s (a cage
takes longer to settle), it repeats the password in the message of a failed login, it stays half open after a
`!fatal`, it rewrites the names and drops the `=` of empty values, and it would connect again by itself, when
safe mode is long gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import socket
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import routeros_api
from pydantic import SecretStr
from routeros_api.exceptions import (
    RouterOsApiCommunicationError,
    RouterOsApiConnectionClosedError,
    RouterOsApiError,
)

from core.model.errors import printable_line
from core.routeros.errors import CertificateError, LoginError, SentenceError, SessionError, SwitchError
from core.routeros.limits import Counted, Watch
from core.routeros.menus import COMMUNITY
from core.util.debug_log import timed

CONNECT_SECONDS = 15.0
"""Seconds for connection, TLS and login together."""

SLACK_SECONDS = 1.0
ANSWER_SECONDS = 60.0
"""Seconds for one complete answer. A reboot or a long write is slower than the library's 15 s."""


_LOGGED_AS_HIDDEN = re.compile(
    r"(?:.*-)?(?:password|passphrase|secret|token|psk|key|pin|community|source|event|data|contents)(?:-.*)?"
)
"""Names of attributes that hold a secret, a script (which may hold some) or the content of a file. The name of an SNMP
community without security is its password (MikroTik manual, "SNMP")."""

# Exceptions of the library for invalid answers, or for a broken connection: its own
# errors, errors of the socket, and those of decoding, of missing keys and of its assertions.
_BROKEN = (RouterOsApiError, OSError, ValueError, LookupError, TypeError, AssertionError)


class ApiSession:
    """A logged-in connection. It is never made again behind the caller's back: once lost, every call fails.

    host, port: where the API listens. tls: SHA-256 of the switch's certificate (DER, 64 hex digits), compared
    before anything is sent, or None for the plain API. timeout: seconds that one answer may take as a whole; connect:
    those of connection, TLS and login together, CONNECT_SECONDS unless given. Raises LoginError, CertificateError or
    SwitchError. One thread (or greenlet) at a time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: str | None,
        user: str,
        password: SecretStr,
        timeout: float = ANSWER_SECONDS,
        connect: float | None = None,
    ) -> None:
        connect = CONNECT_SECONDS if connect is None else connect
        self.place = f"{host}:{port}"
        self._closed = False
        self._timeout = timeout
        self._watch = Watch()
        way = _Plain(self._watch) if tls is None else _Pinned(tls, self._watch)
        self._way = way
        self._pool: Any = routeros_api.RouterOsApiPool(
            host,
            username=user,
            password=password.get_secret_value(),
            port=port,
            plaintext_login=True,  # RouterOS 6.43 and later support no other
            ssl_context=way,
        )
        # The watch ends it before.
        self._pool.set_timeout(connect + SLACK_SECONDS)
        fault: SwitchError | None = None
        try:
            with timed(self.place, f"api: connect and log in as {user}"), self._watch.within(connect):
                self._api: Any = self._pool.get_api()
            self._pool.set_timeout(timeout + SLACK_SECONDS)
        except SwitchError as wrong:
            fault = wrong
        except RouterOsApiCommunicationError as refused:
            # Only the switch's own words: the exception's text repeats the sentence with the password in it.
            fault = LoginError(f"login as {user} refused: {_message_line(refused.original_message)}")
        except _BROKEN as broken:
            fault = self._time_limit_error(f"no session with {self.place}", connect)
            fault = fault or SessionError(f"no session with {self.place}: {_fault_line(broken)}")
        except BaseException:
            self.close()
            raise
        self._pool.password = ""
        if fault:
            self.close()
            # Raised outside of `except`, so that the library's exception is not kept as its context.
            raise fault

    @property
    def closed(self) -> bool:
        return self._closed

    def talk(self, *words: str) -> list[dict[str, str]]:
        """Send one sentence, give the rows of the answer; what an `add` returns comes as a last row, {"ret":
        "*1F"}.

        Words are sent as they are, in their order. Raises SentenceError for a `!trap` (the session lives
        on) and SessionError for anything else that is not an answer (the session is closed).
        """
        return [_decode_row(row) for row in self.talk_bytes(*words)]

    def talk_bytes(self, *words: str) -> list[dict[str, bytes]]:
        """Send a sentence and return values as bytes, for values that are not text, such as the contents of files."""
        if self._closed:
            raise SessionError(f"the session with {self.place} is closed")
        path, _, verb = words[0].rpartition("/")
        fault: SwitchError
        try:
            self._way.begin()
            with (
                timed(self.place, f"api: {logged_sentence(words, path == COMMUNITY.path)}") as exchange,
                self._watch.within(self._timeout),
            ):
                resource = self._api.get_binary_resource(path or "/")
                answer = resource.call(verb, additional_queries=(_Words(words[1:]),))
                rows, done = list(answer), dict(answer.done_message)
                exchange.result = f"{len(rows)} rows"
        except RouterOsApiCommunicationError as refused:
            fault = SentenceError(_message_line(refused.original_message))
        except _BROKEN as broken:
            self.close()
            begin = f"the session with {self.place} broke"
            fault = self._time_limit_error(begin, self._timeout) or SessionError(f"{begin}: {_fault_line(broken)}")
        except BaseException:
            # Stopped in the middle of an answer (a timeout from outside, Ctrl-C): the next answer would be
            # misread.
            self.close()
            raise
        else:
            return [*rows, done] if done else rows
        raise fault

    def close(self) -> None:
        """Close the connection; the switch undoes what safe mode holds. Never raises."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._pool.disconnect()
        self._watch.close()

    def _time_limit_error(self, begin: str, seconds: float) -> SwitchError | None:
        """Return the error of a connection that was closed by its time limit; None for any other."""
        return SessionError(f"{begin}: no whole answer within {seconds:g} s") if self._watch.late else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.place}, {'closed' if self._closed else 'open'})"


class _Words:
    """Ready-made words in the place of a query: the library passes those on untouched and in order, while it
    would rename attributes and send an empty value without its `=`."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = [word.encode("utf-8", "surrogateescape") for word in words]

    def get_api_format(self) -> list[bytes]:
        return self._words


class _Plain:
    """Stands where the library takes an SSL context, the one place that sees the socket before the login."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._counted: Counted | None = None

    def begin(self) -> None:
        """Start the time limit for the next answer."""
        if self._counted:
            self._counted.begin()

    def wrap_socket(self, sock: socket.socket, server_hostname: str) -> Counted:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch.hold(sock)
        self._counted = Counted(self._wrap_socket(sock, server_hostname))
        return self._counted

    def _wrap_socket(self, sock: socket.socket, _server_hostname: str) -> socket.socket:
        return sock


class _Pinned(_Plain):
    """TLS to one certificate. A switch's own certificate has no chain to verify; its fingerprint is stronger."""

    def __init__(self, sha256: str, watch: Watch) -> None:
        super().__init__(watch)
        self._sha256 = sha256
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def _wrap_socket(self, sock: socket.socket, server_hostname: str) -> socket.socket:
        try:
            wrapped = self._context.wrap_socket(sock, server_hostname=server_hostname)
        except OSError as fault:
            sock.close()
            why = "no whole answer in time" if self._watch.late else _fault_line(fault)
            raise SwitchError(f"no TLS: {why}; does the switch's api-ssl have a certificate?") from None
        shown = hashlib.sha256(wrapped.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(shown, self._sha256):
            wrapped.close()
            raise CertificateError(f"the switch shows certificate {shown}, pinned is {self._sha256}")
        return wrapped


def _decode_row(row: dict[str, bytes]) -> dict[str, str]:
    # The library removes the dot of `.id`. Text that is not UTF-8 (WinBox writes the code page of its machine) is kept
    # byte for byte, so that it can be written back; `values.visible_row` is for display.
    return {".id" if key == "id" else key: value.decode("utf-8", "surrogateescape") for key, value in row.items()}


def _message_line(message: bytes) -> str:
    """A message of the switch as one printable line."""
    return printable_line(message.decode(errors="backslashreplace").strip())


def _fault_line(fault: BaseException) -> str:
    """Return one line for an error of the library or the socket. A `!fatal` has its reason as a stray word."""
    if isinstance(fault, RouterOsApiConnectionClosedError):
        return "closed by the switch"
    if isinstance(fault, UnicodeError):
        # Its arguments hold the whole text, which may be a password.
        return "a text is not UTF-8"
    words = [_message_line(part) if isinstance(part, bytes) else str(part) for part in fault.args]
    if words and "%s" in words[0]:
        return f"unexpected answer: {words[-1]}"
    return " ".join(words) or type(fault).__name__


def logged_sentence(words: Sequence[str], secret_row_names: bool) -> str:
    """Return a sentence for a log, without the values of secret attributes and of scripts. `secret_row_names`: whether
    the names of the rows of its menu are secrets, too.
    """
    return " ".join([words[0], *(_logged_word(word, secret_row_names) for word in words[1:])])


def _logged_word(word: str, secret_row_names: bool) -> str:
    sign, name, value = word[:1], *word[1:].partition("=")[::2]
    if not value or not (_LOGGED_AS_HIDDEN.fullmatch(name) or (secret_row_names and name == "name")):
        return word
    return f"{sign}{name}=***"

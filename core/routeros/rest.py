"""Read a switch over REST: another service, user and library than those that write.

It can only read: `print` becomes a GET, `monitor` (once) a POST, and nothing else is sent. REST is stateless, so it
could not hold safe mode anyway (MikroTik manual, 'REST API').
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from typing import Any, Self
from urllib.parse import quote

import requests
from pydantic import SecretStr
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

from core.model.errors import printable_line
from core.routeros.errors import CertificateError, LoginError, SentenceError, SessionError, SwitchError
from core.routeros.limits import MOST_BYTES, AnswerTooLongError, Watch
from core.routeros.menus import Sentence
from core.routeros.values import visible_row
from core.util.debug_log import timed

CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 65.0
"""Seconds for one complete answer: the switch itself gives a command up after 60 s (same manual page)."""

_DIGEST = re.compile(r'got "([0-9a-f]{64})"')
_QUERY = re.compile(r"\?([a-z0-9.-]+)=(.*)", re.DOTALL)


class _PinnedAdapter(HTTPAdapter):
    """TLS to one certificate, by its SHA-256; urllib3 compares it after the handshake, before it sends a byte."""

    def __init__(self, sha256: str, watch: Watch) -> None:
        self._sha256, self._watch = sha256, watch
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        # The fingerprint is stronger than a chain or a host name: a switch signs its certificate itself.
        super().init_poolmanager(*arguments, **options, assert_fingerprint=self._sha256, assert_hostname=False)
        self.poolmanager.pool_classes_by_scheme = {"https": _watched_pool(self._watch)}


def _watched_pool(watch: Watch) -> type[HTTPSConnectionPool]:
    """A pool whose connections are held by `watch` from their first byte on."""

    class Connection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            sock = super()._new_conn()
            watch.hold(sock)
            return sock

    class Pool(HTTPSConnectionPool):
        ConnectionCls = Connection

    return Pool


class Rest:
    """A reader of one switch. `user` needs no more than the policies read and rest-api.

    host, port: where www-ssl listens. sha256: of the switch's certificate (DER, 64 hex digits). Nothing is sent
    before `ask`. timeout: seconds that one answer may take as a whole. One thread at a time. Raises LoginError
    for a user or password that cannot be sent.
    """

    def __init__(
        self, host: str, port: int, *, sha256: str, user: str, password: SecretStr, timeout: float = ANSWER_SECONDS
    ) -> None:
        self.place = f"{host}:{port}"
        self._user, self._sha256, self._timeout = user, sha256, timeout
        self._http = requests.Session()
        # Neither a proxy nor a netrc file of the operator's may come between, nor see the password.
        self._http.trust_env = False
        self._http.verify = False
        self._http.auth = _make_authentication(user, password)
        self._answered = False
        self._watch = Watch()
        self._http.mount("https://", _PinnedAdapter(sha256, self._watch))

    def ask(self, sentence: Sentence) -> list[dict[str, str]]:
        """Return the rows that the same sentence over the API would give, each with its .id besides the requested
        fields.

        Raises ValueError for a sentence that does more than read, SentenceError for one the switch rejects, LoginError,
        CertificateError, and SessionError for an invalid answer.
        """
        method, path, options = request(sentence)
        fault: SwitchError
        try:
            with (
                timed(self.place, f"rest: {method} {path} as {self._user}") as exchange,
                self._watch.within(self._timeout),
            ):
                answer = self._http.request(
                    *(method, f"https://{self.place}/rest{path}"),
                    timeout=(CONNECT_SECONDS, self._timeout),
                    allow_redirects=False,
                    stream=True,
                    **options,
                )
                content = _answer_json(answer)
                exchange.result = f"HTTP {answer.status_code}"
        except AnswerTooLongError as broken:
            self.close()
            fault = SessionError(f"no answer from {self.place} over REST: {broken}")
        except requests.exceptions.RequestException as broken:
            if self._watch.late:
                fault = SessionError(f"no answer from {self.place} over REST: no answer in time")
            elif isinstance(broken, requests.exceptions.SSLError):
                fault = self._explain_tls_failure(str(broken))
            else:
                fault = SessionError(f"no answer from {self.place} over REST: {self._fault_line(broken)}")
        else:
            self._answered = True
            return self._parse_rows(answer, content)
        # Raised outside of `except`: the library's exception holds the request, and with it the password.
        raise fault

    def close(self) -> None:
        """Close the connection. Never raises."""
        self._http.close()
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Rest({self.place}, {self._user})"

    def _fault_line(self, fault: requests.exceptions.RequestException) -> str:
        """One line for an error of the library; its own text repeats the address of the request."""
        match fault:
            case requests.exceptions.ConnectTimeout():
                return f"not reached within {CONNECT_SECONDS:.0f} s"
            case requests.exceptions.Timeout():
                return "no answer in time"
            case requests.exceptions.ConnectionError() if "refused" in str(fault):
                if self._answered:  # so REST is enabled, and its user exists
                    return "connection refused"
                return f"connection refused; the first sparkrack apply enables REST (www-ssl) and creates {self._user}"
            case requests.exceptions.ConnectionError():
                return "closed by the switch, or not reachable"
        return type(fault).__name__

    def _parse_rows(self, answer: requests.Response, content: Any) -> list[dict[str, str]]:
        status = answer.status_code
        if status == requests.codes.unauthorized:
            raise LoginError(
                f"login as {self._user} over REST refused: is the password right, and does its group have rest-api?"
            )
        if status != requests.codes.ok:
            detail = content.get("detail") or content.get("message") if isinstance(content, dict) else None
            raise (
                SentenceError(printable_line(str(detail).strip()))
                if detail
                else SessionError(f"{self.place} answers HTTP {status}")
            )
        rows = content if isinstance(content, list) else [content]
        if not all(isinstance(row, dict) and all(isinstance(text, str) for text in row.values()) for row in rows):
            raise SessionError(f"{self.place} answers what are not rows")
        return [visible_row(row) for row in rows]

    def _explain_tls_failure(self, text: str) -> SwitchError:
        shown = _DIGEST.search(text)
        if shown:
            return CertificateError(f"the switch shows certificate {shown[1]}, pinned is {self._sha256}")
        return SessionError(f"no TLS with {self.place}: does the switch's www-ssl have a certificate?")


def _make_authentication(user: str, password: SecretStr) -> HTTPBasicAuth:
    with contextlib.suppress(UnicodeEncodeError):
        return HTTPBasicAuth(user.encode(), password.get_secret_value().encode())
    # Raised outside of `except`: the error holds the password.
    raise LoginError(f"no login as {user} over REST: its password is not UTF-8; nothing was sent")


def request(sentence: Sentence) -> tuple[str, str, dict[str, Any]]:
    """Method, path and options of the request that asks what `sentence` does; ValueError when it does more."""
    menu, _, verb = sentence[0].rpartition("/")
    attributes, queries = _split_words(sentence[1:])
    path = quote(menu)
    if verb == "print" and attributes.keys() <= {".proplist"}:
        return "GET", path, {"params": [*attributes.items(), *queries]}
    if verb == "monitor" and "once" in attributes and not queries:
        body: dict[str, Any] = {**attributes}
        if ".proplist" in body:
            body[".proplist"] = body[".proplist"].split(",")
        return "POST", f"{path}/monitor", {"json": body}
    raise ValueError(f"{sentence[0]} with these words is not a question that REST is used for")


def _split_words(words: Sentence) -> tuple[dict[str, str], list[tuple[str, str]]]:
    attributes, queries = {}, []
    for word in words:
        if query := _QUERY.fullmatch(word):
            queries.append((query[1], query[2]))
        elif word.startswith("=") and "=" in word[1:]:
            name, _, value = word[1:].partition("=")
            attributes[name] = value
        else:
            raise ValueError("only words like =name=value and ?name=value can be asked over REST")
    return attributes, queries


def _answer_json(answer: requests.Response) -> Any:
    """Return the JSON of an answer; None where there is none, which is never a valid answer. Raises
    AnswerTooLongError.
    """
    data = b""
    for part in answer.iter_content(65536):
        data += part
        if len(data) > MOST_BYTES:
            raise AnswerTooLongError(f"it is longer than {MOST_BYTES // 1024**2} MiB")
    try:
        return json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None

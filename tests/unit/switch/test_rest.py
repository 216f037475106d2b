"""The REST reader against a server that answers as no switch should: questions only, one clear line, no secret."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from core.routeros.errors import CertificateError, LoginError, SentenceError, SessionError, SwitchError
from core.routeros.rest import Rest, request
from lab import certificate

CANARY = "canary-pä8-R"
SENTENCE = ("/interface/bridge/port/print", "=.proplist=.id,interface")


@pytest.mark.parametrize(
    ("sentence", "method", "path", "options"),
    [
        (
            ("/ip/service/print", "=.proplist=.id,name", "?name=www-ssl"),
            "GET",
            "/ip/service",
            {"params": [(".proplist", ".id,name"), ("name", "www-ssl")]},
        ),
        (("/system/resource/print",), "GET", "/system/resource", {"params": []}),
        (
            ("/interface/ethernet/monitor", "=numbers=*4,*6", "=once=", "=.proplist=name,rate"),
            "POST",
            "/interface/ethernet/monitor",
            {"json": {"numbers": "*4,*6", "once": "", ".proplist": ["name", "rate"]}},
        ),
    ],
)
def test_a_question_becomes_a_request(
    sentence: tuple[str, ...], method: str, path: str, options: dict[str, Any]
) -> None:
    assert request(sentence) == (method, path, options)


@pytest.mark.parametrize(
    "sentence",
    [
        ("/user/add", "=name=x"),
        ("/user/set", "=.id=*1", "=password=x"),
        ("/system/script/run", "=number=x"),
        ("/safe-mode/take", "=on-error=abort"),
        ("/interface/ethernet/monitor", "=numbers=*4"),
        ("/interface/ethernet/print", "=from=*4"),
        ("/interface/ethernet/print", "?>mtu=1500"),
        ("/interface/ethernet/print", "?#!"),
        ("/interface/ethernet/print", ".tag=4"),
        ("/log/listen",),
    ],
)
def test_what_is_not_a_question_is_never_sent(sentence: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"REST"):
        request(sentence)


class Server:
    """One HTTPS server on loopback; `answer` is (status, body, headers)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        certificate.make("switch", folder / "cert", folder / "key")
        self.sha256 = certificate.fingerprint(folder / "cert")
        self.answer: tuple[int, bytes, dict[str, str]] = (200, b"[]", {})
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.peers: set[object] = set()
        self.speaks = threading.Event()
        self.speaks.set()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert", folder / "key")
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.requests.append((self.command, self.path, dict(self.headers)))
                server.peers.add(self.client_address)
                server.speaks.wait()
                status, body, headers = server.answer
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                with contextlib.suppress(OSError):  # a reader whose timeout passed is gone
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        """End it; again does nothing."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server")
    yield made
    made.close()


@pytest.fixture
def rest(server: Server) -> Iterator[Callable[..., Rest]]:
    made: list[Rest] = []

    def make(**changed: Any) -> Rest:
        options = {"sha256": server.sha256, "user": "reader", "password": SecretStr(CANARY), "timeout": 10.0}
        made.append(Rest("127.0.0.1", server.port, **{**options, **changed}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fault(rest: Rest) -> SwitchError:
    """What a question ends with; nothing of it may hold the password, wherever one looks."""
    with pytest.raises(SwitchError) as raised:
        rest.ask(SENTENCE)
    seen: BaseException | None = raised.value
    assert seen is not None
    assert seen.__cause__ is None
    assert seen.__context__ is None, "the library's exception holds the request"
    assert CANARY not in f"{seen!r} {rest!r} {vars(seen)}"
    assert "\n" not in str(seen)
    return raised.value


def test_rows(server: Server, rest: Callable[..., Rest]) -> None:
    rows = [{".id": "*1", "interface": "sfp56-1"}]
    server.answer = (200, json.dumps(rows).encode(), {})
    assert rest().ask(SENTENCE) == rows
    ((method, path, _),) = server.requests
    assert (method, path) == ("GET", "/rest/interface/bridge/port?.proplist=.id%2Cinterface")


def test_the_one_row_of_a_menu(server: Server, rest: Callable[..., Rest]) -> None:
    server.answer = (200, b'{"name": "crs812"}', {})
    assert rest().ask(("/system/identity/print", "=.proplist=name")) == [{"name": "crs812"}]


def test_one_connection_serves_all_questions(server: Server, rest: Callable[..., Rest]) -> None:
    reader = rest()
    for _ in range(3):
        assert reader.ask(SENTENCE) == []
    assert len(server.requests) == 3
    assert len(server.peers) == 1


def test_a_switch_that_falls_silent(server: Server, rest: Callable[..., Rest]) -> None:
    server.speaks.clear()
    assert str(fault(rest(timeout=0.1))).endswith("no answer in time")
    server.speaks.set()


def test_another_certificate_gets_no_password(server: Server, rest: Callable[..., Rest]) -> None:
    found = fault(rest(sha256="0" * 64))
    assert isinstance(found, CertificateError)
    assert str(found) == f"the switch shows certificate {server.sha256}, pinned is {'0' * 64}"
    assert server.requests == []


def test_a_refused_login(server: Server, rest: Callable[..., Rest]) -> None:
    server.answer = (401, b'{"error": 401, "message": "Unauthorized"}', {})
    found = fault(rest())
    assert isinstance(found, LoginError)
    assert str(found).startswith("login as reader over REST refused")


def test_a_refused_question_keeps_the_switchs_words(server: Server, rest: Callable[..., Rest]) -> None:
    body = {"error": 400, "message": "Bad Request", "detail": "no such command or directory (qos)\n"}
    server.answer = (400, json.dumps(body).encode(), {})
    found = fault(rest())
    assert isinstance(found, SentenceError)
    assert str(found) == "no such command or directory (qos)"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"null"),
        (200, b'"text"'),
        (200, b"[1]"),
        (200, b'[{"mtu": 9000}]'),
        (200, b'[{"a": "b"}, null]'),
        (200, b"\xff"),
        (500, b"oops"),
        (204, b""),
        (0, b""),
    ],
)
def test_what_is_no_answer(server: Server, rest: Callable[..., Rest], status: int, body: bytes) -> None:
    server.answer = (status, body, {})
    assert isinstance(fault(rest()), SessionError)


def test_a_missing_menu_is_not_an_empty_one(server: Server, rest: Callable[..., Rest]) -> None:
    server.answer = (404, b'{"error": 404, "message": "Not Found"}', {})
    assert str(fault(rest())) == "Not Found"


def test_no_one_is_followed_elsewhere(server: Server, rest: Callable[..., Rest]) -> None:
    server.answer = (302, b"", {"Location": f"https://127.0.0.1:{server.port}/elsewhere"})
    assert isinstance(fault(rest()), SessionError)
    assert len(server.requests) == 1


def test_neither_proxy_nor_netrc_comes_between(
    server: Server, rest: Callable[..., Rest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    rest().ask(SENTENCE)
    ((_, _, headers),) = server.requests
    assert headers["Authorization"] == "Basic " + base64.b64encode(f"reader:{CANARY}".encode()).decode()


def test_no_one_listens(server: Server, rest: Callable[..., Rest]) -> None:
    server.close()
    assert str(fault(rest())) == (
        f"no answer from 127.0.0.1:{server.port} over REST: connection refused; "
        "the first sparkrack apply enables REST (www-ssl) and creates reader"
    )


def test_no_one_listens_any_longer(server: Server, rest: Callable[..., Rest]) -> None:
    """After an answer its user exists; on a new connection, since the server has closed the old one."""
    one = rest()
    one.ask(SENTENCE)
    server.close()
    one.close()
    assert str(fault(one)) == f"no answer from 127.0.0.1:{server.port} over REST: connection refused"


def test_a_password_that_is_not_utf8_is_refused_and_not_repeated(server: Server, rest: Callable[..., Rest]) -> None:
    with pytest.raises(LoginError, match="no login as reader over REST: its password is not UTF-8") as raised:
        rest(password=SecretStr(f"{CANARY}\udce9"))
    assert CANARY not in f"{raised.value!r} {raised.value.__context__!r}"
    assert not server.requests


def test_no_log_holds_the_password(server: Server, rest: Callable[..., Rest], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        rest().ask(SENTENCE)
        server.answer = (401, b"{}", {})
        fault(rest())
    assert caplog.records
    header = server.requests[0][2]["Authorization"].removeprefix("Basic ")
    assert CANARY not in caplog.text
    assert header not in caplog.text

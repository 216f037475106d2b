"""A switch, or something in its place, that never comes to an end ends in one clear line, in time and in bounds."""

from __future__ import annotations

import socket
import threading

import pytest
from pydantic import SecretStr

from core.routeros import limits
from core.routeros.api import ApiSession
from core.routeros.errors import SessionError, SwitchError
from core.routeros.rest import Rest
from tests.unit.switch.endless import PIECE, Say, again, login, server, word

LOGIN_SECONDS, ANSWER_SECONDS = 60.0, 0.3
ROW = b"\x03!re" + word() + b"\x06=n=abc\x00"
ROW_OF_LOGIN = b"\x03!re" + word(1) + b"\x06=n=abc\x00"
LONG_WORD = b"\xf0\x7f\xff\xff\xff"
LATE = f"no whole answer within {ANSWER_SECONDS:g} s"
LONG = "its answer is longer than 1 MiB"


def handshake(connection: socket.socket) -> None:
    """The head of a TLS record of 16 KiB, and then one byte of it after the other."""
    connection.sendall(b"\x16\x03\x03\x40\x00")
    again(b"\x02", 0.1)(connection)


def session(port: int, **limits: float) -> ApiSession:
    limits = {"timeout": ANSWER_SECONDS, "connect": LOGIN_SECONDS, **limits}
    return ApiSession("127.0.0.1", port, tls=None, user="me", password=SecretStr("canary"), **limits)


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda sock: (sock.sendall(LONG_WORD), again(b"x" * PIECE)(sock)), LONG),
        (lambda sock: again(b"\x03=ab" * (PIECE // 4))(sock), LONG),
        (lambda sock: again(ROW * (PIECE // len(ROW)))(sock), LONG),
        (lambda sock: again(b"\x00" * PIECE)(sock), LATE),
        (lambda sock: (sock.sendall(LONG_WORD), again(b"x", 0.2)(sock)), LATE),
        (again(ROW, 0.2), LATE),
        (again(b"\x00", 0.2), LATE),
    ],
    ids=["word", "sentence", "rows", "empty sentences", "slow word", "slow rows", "slow empty sentences"],
)
def test_an_endless_answer(say: Say, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BYTES", 2**20)  # 8 MiB of the smallest words take seconds of CPU time
    timeout = ANSWER_SECONDS if why == LATE else 600.0
    with server(login, say) as port, session(port, timeout=timeout) as open_:
        with pytest.raises(SessionError) as fault:
            open_.talk("/interface/print")
        assert str(fault.value) == f"the session with 127.0.0.1:{port} broke: {why}"
        assert open_.closed


@pytest.mark.parametrize("say", [again(b"\x00", 0.1), again(ROW_OF_LOGIN, 0.1)], ids=["nothing", "rows"])
def test_an_endless_login(say: Say) -> None:
    with server(say) as port, pytest.raises(SessionError) as fault:
        session(port, connect=0.3)
    assert str(fault.value) == f"no session with 127.0.0.1:{port}: no whole answer within 0.3 s"


def test_an_endless_handshake() -> None:
    with server(handshake) as port, pytest.raises(SwitchError) as fault:
        ApiSession("127.0.0.1", port, tls="00" * 32, user="me", password=SecretStr("canary"), connect=0.3)
    assert str(fault.value) == "no TLS: no whole answer in time; does the switch's api-ssl have a certificate?"


def test_answers_are_counted_one_by_one() -> None:
    half = b"\x03!re" + word() + b"\xd0\x00\x00=n=" + b"x" * (2**20 - 3) + b"\x00"
    done = [b"\x05!done" + word(tag) + b"\x00" for tag in range(2, 20)]
    says: list[Say] = [lambda sock, end=end: sock.sendall(half.replace(word(), end[6:-1]) + end) for end in done]  # type: ignore[misc]
    with server(login, *says) as port, session(port, timeout=600.0) as open_:
        for _ in done:
            assert len(open_.talk("/interface/print")) == 1
    assert len(done) * 2**20 > limits.MOST_BYTES


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with server(login, again(ROW, 0.1)) as port, session(port, timeout=0.3) as open_, pytest.raises(SessionError):
        open_.talk("/interface/print")
    assert threading.active_count() <= before + 1


def test_rest_that_does_not_finish_its_handshake() -> None:
    with server(handshake) as port:
        rest = Rest("127.0.0.1", port, sha256="00" * 32, user="me", password=SecretStr("canary"), timeout=0.3)
        with rest, pytest.raises(SessionError) as fault:
            rest.ask(("/interface/print",))
        assert str(fault.value) == f"no answer from 127.0.0.1:{port} over REST: no answer in time"

"""One API session against the emulated switch: what the adapter puts right about the library below it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import routeros_api
from pydantic import SecretStr

import core.routeros.api
from core.routeros.api import ANSWER_SECONDS, ApiSession
from core.routeros.errors import CertificateError, LoginError, SentenceError, SessionError, SwitchError
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process

IDENTITY = ("/system/identity/print", "=.proplist=name")


def open_session(switch: Crs812Process, **other: object) -> ApiSession:
    """A session as declared, some of its arguments replaced."""
    arguments = {
        "host": "127.0.0.1",
        "port": switch.tls_port,
        "tls": switch.fingerprint,
        "user": USER,
        "password": SecretStr(switch.password),
    }
    return ApiSession(**(arguments | other))  # type: ignore[arg-type]


@pytest.fixture
def session(crs812: Crs812Process) -> Iterator[ApiSession]:
    with open_session(crs812) as opened:
        yield opened


@pytest.mark.parametrize("encrypted", [True, False])
def test_rows_come_with_their_dotted_names(crs812: Crs812Process, encrypted: bool) -> None:
    plain = {} if encrypted else {"tls": None, "port": crs812.plain_port}
    with open_session(crs812, **plain) as session:
        assert session.talk(*IDENTITY) == [{"name": "MikroTik"}]
        rows = session.talk("/interface/ethernet/print", "=.proplist=.id,default-name", "?default-name=ether1")
        assert rows == [{".id": "*2", "default-name": "ether1"}]
        socket_ = session._pool.socket.socket
        assert socket_.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_words_arrive_as_they_are_and_in_their_order(crs812: Crs812Process, session: ApiSession) -> None:
    session.talk("/interface/ethernet/set", "=.id=*4", "=comment=a_b=ü\n")
    session.talk("/interface/ethernet/set", "=.id=*5", "=comment=gone")
    session.talk("/interface/ethernet/set", "=.id=*5", "=comment=")
    query = ("?default-name=qsfp56-dd-1-1", "?default-name=qsfp56-dd-1-2", "?#|", "?disabled=false", "?#&")
    rows = session.talk("/interface/ethernet/print", "=.proplist=comment,default-name", *query)
    assert [row.get("comment", "") for row in rows] == ["a_b=ü\n", ""]
    assert crs812.log()[-1]["words"][-6:-1] == list(query)  # the last is the tag


def test_what_an_add_returns_is_a_row(session: ApiSession) -> None:
    (port,) = session.talk("/interface/bridge/port/print", "=.proplist=.id", "?interface=ether2")
    session.talk("/interface/bridge/port/remove", f"=.id={port['.id']}")
    (answer,) = session.talk("/interface/bridge/port/add", "=interface=ether2", "=bridge=bridge")
    (port,) = session.talk("/interface/bridge/port/print", "=.proplist=.id", "?interface=ether2")
    assert answer == {"ret": port[".id"]}


def test_an_empty_answer_is_not_a_rows(session: ApiSession) -> None:
    assert session.talk("/interface/ethernet/print", "?name=none-such") == []


def test_a_refused_sentence_leaves_the_session_alive(session: ApiSession) -> None:
    with pytest.raises(SentenceError, match=r"^no such command"):
        session.talk("/none/such/print")
    assert session.talk(*IDENTITY) == [{"name": "MikroTik"}]


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ({"kind": "drop"}, "closed by the switch"),
        ({"kind": "garbage"}, "broke: "),
        ({"kind": "fatal", "message": "out of memory"}, "out of memory"),
    ],
)
def test_a_broken_session_stays_closed(
    crs812: Crs812Process, session: ApiSession, fault: dict[str, str], reported: str
) -> None:
    crs812.control({"op": "fault", "match": "/system/identity", **fault})
    with pytest.raises(SessionError, match=reported):
        session.talk(*IDENTITY)
    logins = sum(line["command"] == "/login" for line in crs812.log() if "command" in line)
    with pytest.raises(SessionError, match="is closed"):
        session.talk(*IDENTITY)
    assert session.closed
    assert sum(line["command"] == "/login" for line in crs812.log() if "command" in line) == logins


def test_an_answer_may_take_longer_than_the_library_would_wait(
    crs812: Crs812Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 15 s hold for connecting and logging in; a longer wait is set on the socket that is open."""
    assert ANSWER_SECONDS >= 60
    monkeypatch.setattr(core.routeros.api, "CONNECT_SECONDS", 5.0)
    with open_session(crs812) as session:
        assert session._pool.socket.socket.gettimeout() > ANSWER_SECONDS
        crs812.control({"op": "fault", "kind": "delay", "match": "/system/identity", "seconds": 6.5})
        assert session.talk(*IDENTITY) == [{"name": "MikroTik"}]


def test_a_silent_switch_ends_the_session(crs812: Crs812Process) -> None:
    with open_session(crs812, timeout=0.3) as session:
        crs812.control({"op": "fault", "kind": "mute", "match": "/system/identity"})
        with pytest.raises(SessionError, match="no whole answer within"):
            session.talk(*IDENTITY)
        assert session.closed


def test_closing_gives_safe_mode_up(crs812: Crs812Process) -> None:
    with open_session(crs812) as session:
        session.talk("/safe-mode/take", "=on-error=abort")
        session.talk("/system/identity/set", "=name=other")
    with open_session(crs812) as again:
        assert again.talk(*IDENTITY) == [{"name": "MikroTik"}]


def test_a_wrong_password_is_not_repeated(crs812: Crs812Process) -> None:
    with pytest.raises(LoginError, match="login as sparkrack refused") as raised:
        open_session(crs812, password=SecretStr("canary-1234"))
    printed = [
        str(raised.value),
        repr(raised.value),
        repr(raised.value.__context__),
        repr(raised.value.__cause__),
    ]
    assert not any("canary" in text for text in printed)


def test_a_text_that_is_not_utf8_is_not_repeated(crs812: Crs812Process) -> None:
    """What a terminal of another encoding gives Python, as a password and in a sentence."""
    secret = "canary-\udce9-1234"
    with pytest.raises(SessionError, match="a text is not UTF-8") as raised:
        open_session(crs812, password=SecretStr(secret))
    printed: list[Exception] = [raised.value]
    # In a sentence such bytes are sent as they are: values of the switch are put back byte for byte.
    with open_session(crs812) as session, pytest.raises(SentenceError, match="missing =group=") as refused:
        session.talk("/user/add", "=name=x", f"=password={secret}")
    printed.append(refused.value)
    for fault in printed:
        assert "canary" not in f"{fault} {fault!r} {fault.__context__!r} {fault.__cause__!r}"


def test_the_session_does_not_keep_or_show_the_password(crs812: Crs812Process, session: ApiSession) -> None:
    assert crs812.password not in repr(session)
    assert session._pool.password == ""


def test_another_certificate_is_refused_before_anything_is_sent(crs812: Crs812Process) -> None:
    with pytest.raises(CertificateError) as raised:
        open_session(crs812, tls="ab" * 32)
    assert crs812.fingerprint in str(raised.value)
    assert "ab" * 32 in str(raised.value)
    assert not [line for line in crs812.log() if line.get("command")]


def test_tls_to_the_plain_port_says_what_is_missing(crs812: Crs812Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.routeros.api, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SwitchError, match="no TLS"):
        open_session(crs812, port=crs812.plain_port)


def test_no_one_there(make_switch: MakeSwitch) -> None:
    switch = make_switch()
    switch.stop()
    with pytest.raises(SwitchError, match="refused"):
        open_session(switch)


def test_a_session_is_shown_by_its_place_and_whether_it_is_open(crs812: Crs812Process) -> None:
    session = open_session(crs812)
    place = f"127.0.0.1:{crs812.tls_port}"
    assert repr(session) == f"Session({place}, open)"
    session.close()
    assert repr(session) == f"Session({place}, closed)"


def test_an_interrupt_during_the_login_is_passed_on_and_leaves_no_connection(
    crs812: Crs812Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: routeros_api.RouterOsApiPool) -> None:
        raise KeyboardInterrupt

    closed: list[ApiSession] = []
    close = ApiSession.close

    def noted(session: ApiSession) -> None:
        closed.append(session)
        close(session)

    monkeypatch.setattr(routeros_api.RouterOsApiPool, "get_api", interrupted)
    monkeypatch.setattr(ApiSession, "close", noted)
    with pytest.raises(KeyboardInterrupt):
        open_session(crs812)
    assert [session.closed for session in closed] == [True]

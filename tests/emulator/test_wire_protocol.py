"""What clients get wrong or never try: raw bytes against the real server (MikroTik manual, 'API')."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from collections.abc import Callable

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient, attributes, encode, trap

Connect = Callable[[Crs812Process], RawClient]


def test_a_command_before_login_is_fatal(shared: Crs812Process) -> None:
    client = RawClient(shared.plain_port)
    client.send("/system/identity/print")
    assert client.read() == ["!fatal", "not logged in"]
    assert client.closed()


@pytest.mark.parametrize(("name", "password"), [(USER, "wrong"), ("nobody", "x"), (USER, ""), ("*2", "x")])
def test_a_wrong_login_is_trapped_and_may_be_tried_again(shared: Crs812Process, name: str, password: str) -> None:
    client = RawClient(shared.plain_port)
    answers = client.ask("/login", f"=name={name}", f"=password={password}")
    assert answers == [["!trap", "=message=invalid user name or password (6)"], ["!done"]]
    client.login(USER, shared.password)
    client.close()


def test_a_login_that_begins_with_a_challenge(shared: Crs812Process) -> None:
    """The sentences of ros-client 1.1.2 (npm): a bare /login, whose answer it drops, then name and password."""
    client = RawClient(shared.plain_port)
    ((reply, challenge),) = client.ask("/login")
    assert reply == "!done"
    assert re.fullmatch("=ret=[0-9a-f]{32}", challenge)
    client.send("/system/identity/print")
    assert client.read() == ["!fatal", "not logged in"], "a challenge is not a login"
    client = RawClient(shared.plain_port)
    assert client.ask("/login") != [["!done", challenge]]
    old = ["/login", f"=name={USER}", f"=response=00{'0' * 32}"]
    assert trap(client.ask(*old)) == "invalid user name or password (6)"
    client.login(USER, shared.password)
    assert client.ask("/system/identity/print")[-1] == ["!done"]
    client.close()


def test_quit_says_goodbye_and_closes(raw: RawClient) -> None:
    raw.send("/quit")
    assert raw.read() == ["!fatal", "session terminated on request"]
    assert raw.closed()


@pytest.mark.parametrize("size", [0x7F, 0x80, 0x3FFF, 0x4000, 0x1FFFFF, 0x200000])
def test_words_at_every_length_edge(raw: RawClient, size: int) -> None:
    head = "=message="
    text = "x" * (size - len(head))
    assert raw.ask("/log/info", head + text) == [["!done"]]
    (row, _done) = raw.ask("/log/print", f"?message={text}", "=.proplist=message")
    assert row[1] == head + text


def test_text_survives_in_utf_8(raw: RawClient) -> None:
    assert raw.ask("/interface/ethernet/set", "=numbers=sfp56-8", "=comment=Kühlung – 冷却") == [["!done"]]
    (row, _done) = raw.ask("/interface/ethernet/print", "?name=sfp56-8", "=.proplist=comment")
    assert row == ["!re", "=comment=Kühlung – 冷却"]


def test_bytes_that_are_no_utf_8_come_back_unchanged(raw: RawClient) -> None:
    raw.send("/interface/ethernet/set", "=numbers=sfp56-8", b"=comment=\xff\xfe")
    assert raw.read() == ["!done"]
    raw.send("/interface/ethernet/get", "=number=sfp56-8", "=value-name=comment")
    wanted = encode(["!done", b"=ret=\xff\xfe"])
    assert raw.socket.recv(len(wanted)) == wanted


def test_empty_sentences_are_ignored(raw: RawClient) -> None:
    raw.send_raw(b"\x00\x00" + encode(["/system/identity/print"]) + b"\x00")
    assert [raw.read()[0], raw.read()[0]] == ["!re", "!done"]
    assert raw.ask("/system/identity/print")[-1] == ["!done"]


def test_a_reserved_control_byte_ends_the_connection(raw: RawClient) -> None:
    raw.send_raw(b"\xf8")
    assert raw.closed()


def test_a_sentence_in_many_small_pieces_is_one_sentence(raw: RawClient) -> None:
    for byte in encode(["/system/identity/print", ".tag=slow"]):
        raw.send_raw(bytes([byte]))
    assert raw.read()[:2] == ["!re", ".tag=slow"]
    assert raw.read() == ["!done", ".tag=slow"]


def test_spaces_in_a_command_are_slashes(raw: RawClient) -> None:
    assert raw.ask("/system identity print")[0][0] == "!re"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("/interface/fibre/print", "no such command prefix"),
        ("/interface/ethernet/explode", "no such command"),
        ("/interface/ethernet/add", "no such command"),
        ("/system/resource/set", "no such command"),
        ("/print", "no such command"),
        ("nonsense", "no such command"),
    ],
)
def test_unknown_commands(raw: RawClient, command: str, message: str) -> None:
    answers = raw.ask(command)
    assert trap(answers) == message
    assert answers[-1] == ["!done"]


def test_every_reply_carries_its_tag_and_pipelined_commands_are_all_answered(raw: RawClient) -> None:
    tags = [f"t{n}" for n in range(20)]
    raw.send_raw(b"".join(encode(["/interface/bridge/print", f".tag={tag}"]) for tag in tags))
    answers = [raw.read() for _ in range(2 * len(tags))]
    for tag in tags:
        assert [answer[0] for answer in answers if answer[1] == f".tag={tag}"] == ["!re", "!done"]


def test_a_stream_runs_beside_other_commands_until_it_is_cancelled(raw: RawClient) -> None:
    raw.send("/interface/ethernet/monitor", "=numbers=ether1,ether2", "=interval=20ms", ".tag=m")
    seen = [raw.read() for _ in range(6)]
    assert {attributes(row)["name"] for row in seen} == {"ether1", "ether2"}
    raw.send("/system/identity/print", ".tag=p")
    raw.send("/cancel", "=tag=m", ".tag=c")
    last: dict[str, list[list[str]]] = {"m": [], "p": [], "c": []}
    while not all(answers and answers[-1][0] == "!done" for answers in last.values()):
        answer = raw.read()
        last[answer[1].removeprefix(".tag=")].append(answer)
    assert last["m"][-2:] == [
        ["!trap", ".tag=m", "=category=2", "=message=interrupted"],
        ["!done", ".tag=m"],
    ]
    assert last["c"] == [["!done", ".tag=c"]]
    assert last["p"][-1] == ["!done", ".tag=p"]
    assert raw.ask("/system/identity/print")[-1] == ["!done"]


def test_a_stream_without_tag_ends_with_a_plain_cancel(raw: RawClient) -> None:
    raw.send("/interface/ethernet/monitor", "=numbers=ether1", "=interval=20ms")
    assert raw.read()[0] == "!re"
    raw.send("/cancel")
    answers = [raw.read()]
    while len([a for a in answers if a == ["!done"]]) < 2:
        answers.append(raw.read())
    assert ["!trap", "=category=2", "=message=interrupted"] in answers


@pytest.mark.parametrize(
    ("version", "reported"), [("7.24.6 (long-term)", True), ("7.24rc4", True), ("7.18", True), ("7.17.2", False)]
)
def test_a_print_that_finds_nothing(make_switch: MakeSwitch, connect: Connect, version: str, reported: bool) -> None:
    client = connect(make_switch(version=version))
    answers = client.ask("/interface/ethernet/print", "?name=none")
    assert answers == ([["!empty"], ["!done"]] if reported else [["!done"]])


def test_a_row_without_any_field_of_the_proplist_is_an_empty_row(raw: RawClient) -> None:
    assert raw.ask("/system/identity/print", "=.proplist=colour") == [["!re"], ["!done"]]


def test_count_only(raw: RawClient) -> None:
    assert raw.ask("/interface/ethernet/print", "=count-only=") == [["!done", "=ret=34"]]


@pytest.mark.parametrize(
    ("queries", "names"),
    [
        (["?name=ether1"], {"ether1"}),
        (["?=name=ether1"], {"ether1"}),
        (["?name=ether1", "?name=ether2", "?#|"], {"ether1", "ether2"}),
        (["?name=ether1", "?name=ether2"], set()),
        (["?fec-mode", "?#!"], {"ether1", "ether2"}),
        (["?-fec-mode"], {"ether1", "ether2"}),
        (["?-fec-mode", "?name=ether1", "?#!&"], {"ether2"}),
        (["?name=ether1", "?name=ether2", "?#1.!", "?#&", "?#|"], {"ether1", "ether2"}),
        (["?name=ether1", "?#.", "?#&"], {"ether1"}),
        (["?name=ether1", "?name=ether2", "?#1"], {"ether1"}),
        (["?disabled=yes"], set()),
        (["?disabled=no", "?-fec-mode"], {"ether1", "ether2"}),
        (["?l2mtu<1585", "?-fec-mode"], set()),
        (["?<l2mtu=1585", "?-fec-mode"], {"ether1", "ether2"}),
        (["?>l2mtu=999", "?-fec-mode"], {"ether1", "ether2"}),
        (["?>l2mtu=1584"], set()),
    ],
)
def test_queries(raw: RawClient, queries: list[str], names: set[str]) -> None:
    answers = raw.ask("/interface/ethernet/print", "=.proplist=name", *queries)
    found = {attributes(answer)["name"] for answer in answers if answer[0] == "!re"}
    assert found == names


def test_a_query_operation_without_values_is_refused(raw: RawClient) -> None:
    assert "stack" in trap(raw.ask("/interface/ethernet/print", "?#&"))


def test_an_attribute_without_second_equals_sign_is_empty(raw: RawClient) -> None:
    assert raw.ask("/interface/ethernet/set", "=numbers=sfp56-7", "=comment=x") == [["!done"]]
    assert raw.ask("/interface/ethernet/set", "=numbers=sfp56-7", "=comment") == [["!done"]]
    assert raw.ask("/interface/ethernet/print", "?name=sfp56-7", "=.proplist=comment") == [["!re"], ["!done"]]


def test_peers_that_talk_nonsense_or_vanish_do_no_harm(make_switch: MakeSwitch, connect: Connect) -> None:
    switch = make_switch()
    for port, data in (
        (switch.tls_port, b"GET / HTTP/1.1\r\n\r\n"),
        (switch.plain_port, b"\x16\x03\x01\xff"),
    ):
        nonsense = RawClient(port)
        nonsense.send_raw(data)
        nonsense.close()
    for _ in range(3):
        vanishing = connect(switch)
        vanishing.send("/interface/ethernet/monitor", "=numbers=ether1,sfp56-1", "=interval=20ms", ".tag=m")
        vanishing.send_raw(encode(["/interface/ethernet/print"]) * 20)
        vanishing.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        vanishing.close()
    assert connect(switch).ask("/system/identity/print")[-1] == ["!done"]
    assert switch.stop() == 0


def test_tls_serves_the_configured_certificate(shared: Crs812Process) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", shared.tls_port), timeout=60)
    with context.wrap_socket(plain) as connection:
        certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None
        assert hashlib.sha256(certificate).hexdigest() == shared.fingerprint
        connection.sendall(encode(["/quit"]))
        assert connection.recv(100) == encode(["!fatal", "not logged in"])

"""The test knobs, and the record of all sentences."""

from __future__ import annotations

import json

import pytest

from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_tables import one
from tests.emulator.test_wire_protocol import Connect

SET = "/system/identity/set"


def name(client: RawClient) -> str:
    return one(client, "/system/identity")["name"]


def test_reads_writes_and_refusals_are_counted_by_menu(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    client.ask("/interface/bridge/print")
    client.ask(SET, "=name=x")
    client.ask(SET, "=colour=x")
    client.ask("/safe-mode/release")
    stats = crs812.stats()
    assert stats["reads"]["/interface/bridge"] == 1
    assert stats["writes"] == {"/system/identity": 1}
    assert stats["refused"] == {"/system/identity": 1}
    assert crs812.writes() == 1


def test_every_sentence_is_logged_with_its_result(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask(SET, "=name=x")
    client.ask(SET, "=colour=x")
    client.send("/quit")
    client.read()
    lines = [line for line in crs812.log() if line["command"]]
    assert [(line["kind"], line["command"], line["result"]) for line in lines] == [
        ("session", "/login", "done"),
        ("write", SET, "done"),
        ("write", SET, "trap: unknown parameter colour"),
        ("session", "/quit", "fatal: session terminated on request"),
    ]
    assert lines[1]["words"] == [SET, "=name=x"]
    assert {(line["user"], line["peer"]) for line in lines} == {(USER, "127.0.0.1")}
    assert len({line["session"] for line in lines}) == 1


def test_no_password_is_ever_logged(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    RawClient(crs812.plain_port).ask("/login", f"=name={USER}", "=password=wrong-secret")
    event = 'add name=y password="on event secret" ; /tool fetch password=bare-secret'
    client.ask("/user/add", "=name=x", "=group=full", "=password=new-secret")
    client.ask("/user/print", "?password=query-secret", "?=password=query-secret")
    client.ask("/system/scheduler/add", "=name=s", f"=on-event={event}")
    client.ask("/user/add password=folded-secret")
    text = crs812.config.log.read_text()
    assert "secret" not in text
    assert crs812.password not in text
    assert text.count("***") >= 6
    assert "secret" not in json.dumps(crs812.state()["tables"]["/user"])


def test_a_trap_on_purpose_hits_once_after_so_many(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    crs812.control({"op": "fault", "kind": "trap", "match": SET, "after": 1, "message": "failure: no"})
    assert client.ask(SET, "=name=one") == [["!done"]]
    assert trap(client.ask(SET, "=name=two")) == "failure: no"
    assert name(client) == "one"
    assert client.ask(SET, "=name=three") == [["!done"]]


def test_healing_ends_lasting_faults(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    crs812.control({"op": "fault", "kind": "trap", "match": "/system", "times": 0})
    assert [trap(client.ask("/system/identity/print")) for _ in range(3)] == ["failure: injected"] * 3
    crs812.control({"op": "heal"})
    assert name(client) == "MikroTik"


@pytest.mark.parametrize(("executed", "left"), [(False, "MikroTik"), (True, "done")])
@pytest.mark.parametrize("tag", [[], [".tag=1"]])
def test_a_dropped_connection(
    crs812: Crs812Process, connect: Connect, executed: bool, left: str, tag: list[str]
) -> None:
    client = connect(crs812)
    crs812.control({"op": "fault", "kind": "drop", "match": SET, "executed": executed})
    client.send(SET, "=name=done", *tag)
    with pytest.raises((EOFError, ConnectionError)):
        client.read()
    assert name(connect(crs812)) == left


def test_a_fatal_a_lie_and_a_silence(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    crs812.control({"op": "fault", "kind": "ignore", "match": SET})
    assert client.ask(SET, "=name=lie") == [["!done"]]
    assert name(client) == "MikroTik"
    crs812.control({"op": "fault", "kind": "mute", "match": SET})
    client.send(SET, "=name=silence")
    assert name(client) == "silence"
    crs812.control({"op": "fault", "kind": "fatal", "match": SET, "message": "out of memory"})
    client.send(SET, "=name=fatal")
    assert client.read() == ["!fatal", "out of memory"]
    assert client.closed()


def test_garbage_and_delay(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    crs812.control({"op": "fault", "kind": "delay", "match": SET, "seconds": 0.05})
    client.send(SET, "=name=late", ".tag=late")
    client.send("/system/identity/print", ".tag=soon")
    assert [client.read()[1] for _ in range(3)] == [".tag=soon", ".tag=soon", ".tag=late"]
    crs812.control({"op": "fault", "kind": "garbage", "match": SET})
    client.send(SET, "=name=x")
    with pytest.raises(AssertionError, match="control byte"):
        client.read()


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "nonsense"},
        {},
        {"op": "fault", "kind": "gremlin"},
        {"op": "fault", "kind": "trap", "colour": "red"},
        {"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 2},
        {"op": "cable", "do": "twist", "cage": "qsfp56-dd-1", "lane": 1},
        {"op": "settle", "seconds": "soon"},
    ],
)
def test_wrong_requests_are_answered_with_a_reason(shared: Crs812Process, request_: dict[str, object]) -> None:
    with pytest.raises(RuntimeError, match=r"\w"):
        shared.control(request_)
    assert shared.control({"op": "stats"})

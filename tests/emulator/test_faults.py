"""Faults at the n-th write, before or after it takes effect: what tables of interrupted changes stand on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

WRITES = 4


def write(client: RawClient, count: int) -> None:
    """Write `count` comments, one a port, with a read before each."""
    for number in range(1, count + 1):
        client.ask("/interface/ethernet/print", "=.proplist=name")
        answers = client.ask("/interface/ethernet/set", f"=numbers=sfp56-{number}", "=comment=written")
        assert answers == [["!done"]], answers


def written(client: RawClient) -> set[str]:
    return {row["name"] for row in rows(client, "/interface/ethernet", "?comment=written")}


def sets(switch: Crs812Process) -> int:
    """How many writes the switch has got so far."""
    return sum(line.get("command") == "/interface/ethernet/set" for line in switch.log())


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("nth", range(WRITES))
@pytest.mark.parametrize("kind", ["drop", "trap", "hang", "fatal"])
def test_at_write_n(shared: Crs812Process, connect: Connect, kind: str, nth: int, executed: bool) -> None:
    shared.control({"op": "reset"})
    shared.control({"op": "fault", "kind": kind, "on": "write", "after": nth, "executed": executed})
    before = sets(shared)
    client = connect(shared)
    if kind == "hang":
        write(client, nth)  # these are answered, however late
        client.send("/interface/ethernet/set", f"=numbers=sfp56-{nth + 1}", "=comment=written")
        until(lambda: sets(shared) == before + nth + 1)
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
    else:
        with pytest.raises((EOFError, ConnectionError, AssertionError)):
            write(client, WRITES)
    shared.control({"op": "heal"})
    count = nth + (1 if executed else 0)
    assert written(connect(shared)) == {f"sfp56-{number}" for number in range(1, count + 1)}


def test_reads_are_not_writes(shared: Crs812Process, connect: Connect) -> None:
    shared.control({"op": "reset"})
    shared.control({"op": "fault", "kind": "trap", "on": "write", "times": 0})
    client = connect(shared)
    assert one(client, "/system/identity")["name"] == "MikroTik"
    assert client.ask("/safe-mode/take") == [["!done"]]
    assert trap(client.ask("/system/identity/set", "=name=x")) == "failure: injected"
    assert trap(client.ask("/certificate/sign", "=number=api-ssl")) == "failure: injected"


def test_signing_may_be_lost_on_the_way_back(shared: Crs812Process, connect: Connect) -> None:
    shared.control({"op": "reset"})
    client = connect(shared)
    client.ask("/certificate/add", "=name=t", "=common-name=t", "=key-size=prime256v1")
    shared.control({"op": "fault", "kind": "drop", "match": "/certificate/sign", "executed": True})
    with pytest.raises((EOFError, ConnectionError)):
        client.ask("/certificate/sign", "=number=t")
    assert one(connect(shared), "/certificate", "?name=t")["private-key"] == "true"


def test_a_hang_holds_what_waits_for_it_and_nothing_else(shared: Crs812Process, connect: Connect) -> None:
    shared.control({"op": "reset"})
    client = connect(shared)
    shared.control({"op": "fault", "kind": "hang", "match": "/system/identity/set"})
    client.send("/system/identity/set", "=name=tagged", ".tag=1")
    assert one(client, "/system/identity")["name"] == "MikroTik", "a tagged command does not delay the next one"
    shared.control({"op": "fault", "kind": "hang", "match": "/system/identity/set"})
    client.send("/system/identity/set", "=name=untagged")
    client.send("/system/identity/print")
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    assert one(connect(shared), "/system/identity")["name"] == "MikroTik"


def test_a_client_that_gives_up_on_a_hang_loses_its_safe_mode(shared: Crs812Process, connect: Connect) -> None:
    shared.control({"op": "reset"})
    client = connect(shared)
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=within")
    shared.control({"op": "fault", "kind": "hang", "on": "write"})
    client.send("/system/identity/set", "=name=hung")
    client.close()
    other = connect(shared)
    while one(other, "/safe-mode")["enabled"] == "true":
        pass
    assert one(other, "/system/identity")["name"] == "MikroTik"


@pytest.mark.parametrize("change", [{"on": "reads"}, {"on": None}])
def test_a_fault_on_nothing_known(shared: Crs812Process, change: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="not on"):
        shared.control({"op": "fault", "kind": "trap", **change})

"""One emulator for many tests: everything is again as when its process started."""

from __future__ import annotations

import re

import pytest

from tests.emulator.emulator_process import Crs812Process
from tests.emulator.rest_client import plain
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until


def still(tables: dict[str, list[dict[str, str]]]) -> dict[str, list[dict[str, str]]]:
    """Tables without what moves by itself: counters and times."""
    moving = re.compile(r".*-bytes?|.*-packet|expires-after|time|date|uptime")
    return {
        path: [{name: value for name, value in row.items() if not moving.fullmatch(name)} for row in found]
        for path, found in tables.items()
    }


def test_a_reset_brings_back_everything(crs812: Crs812Process, connect: Connect) -> None:
    until(lambda: crs812.links()["qsfp56-dd-1-1"] != "initializing")
    before = crs812.state()
    client = connect(crs812)
    client.ask("/certificate/add", "=name=t", "=common-name=t", "=key-size=prime256v1")
    client.ask("/certificate/sign", "=number=t")
    client.ask("/certificate/remove", "=numbers=api-ssl")
    client.ask("/user/add", "=name=other", "=group=full", "=password=x")
    client.ask("/interface/bridge/add", "=name=second")
    client.ask("/interface/ethernet/set", "=numbers=qsfp56-dd-1-1", "=l2mtu=9500")
    client.ask("/ip/service/set", "=numbers=www", "=disabled=yes")
    client.ask("/system/identity/set", "=name=before")
    client.ask("/safe-mode/take")
    client.ask("/system/identity/set", "=name=within")
    crs812.control({"op": "fault", "kind": "trap", "times": 0})
    crs812.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 1})
    crs812.control({"op": "settle", "seconds": 60})
    crs812.control({"op": "unroll_delay", "seconds": 60})
    crs812.control({"op": "learn", "address": "127.0.0.1", "interface": "ether2"})
    assert crs812.control({"op": "reset"}) == {"sessions": 1}
    with pytest.raises((EOFError, ConnectionError)):
        client.ask("/system/identity/print")
    until(lambda: crs812.links()["qsfp56-dd-1-1"] != "initializing")
    after = crs812.state()
    assert still(after.pop("tables")) == still(before.pop("tables"))
    assert after == before
    assert crs812.stats() == {"reads": {}, "writes": {}, "refused": {}}
    client = connect(crs812)
    assert rows(client, "/system/history") == []
    assert not [row for row in rows(client, "/log") if "within" in row["message"] or "added" in row["message"]]
    host = one(client, "/interface/bridge/host", "?local=false")
    assert host["on-interface"] == "ether1"
    assert plain(crs812).get("/system/identity") == {"name": "MikroTik"}
    assert one(client, "/certificate")["fingerprint"] == crs812.fingerprint
    first = client.ask("/system/script/add", "=name=s", "=source=")
    crs812.control({"op": "reset"})
    assert connect(crs812).ask("/system/script/add", "=name=s", "=source=") == first, "ids begin again as well"


def test_a_reset_switch_starts_as_reset(crs812: Crs812Process, connect: Connect) -> None:
    connect(crs812).ask("/system/identity/set", "=name=changed")
    crs812.control({"op": "reset"})
    crs812.kill()
    assert one(connect(crs812.start()), "/system/identity")["name"] == "MikroTik"


def test_a_switch_resets_to_where_it_started_and_not_to_the_factory(crs812: Crs812Process, connect: Connect) -> None:
    connect(crs812).ask("/system/identity/set", "=name=kept")
    crs812.stop()
    connect(crs812.start()).ask("/system/identity/set", "=name=changed")
    crs812.control({"op": "reset"})
    assert one(connect(crs812), "/system/identity")["name"] == "kept"

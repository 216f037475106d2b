"""/ip/service and /ip/arp: which services are open, to whom, and what the unit knows of its clients."""

from __future__ import annotations

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.rest_client import plain
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until


def write(client: RawClient, service: str, *words: str) -> None:
    assert client.ask("/ip/service/set", f"=numbers={service}", *words) == [["!done"]]


def test_a_disabled_service_refuses_until_it_is_enabled_again(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    write(client, "api", "=disabled=yes")
    with pytest.raises(ConnectionRefusedError):
        RawClient(crs812.plain_port)
    assert one(client, "/system/identity") == {"name": "MikroTik"}, "a session that exists goes on"
    client.ask("/ip/service/enable", "=numbers=api")
    assert one(connect(crs812), "/system/identity") == {"name": "MikroTik"}


def test_www_refuses_when_it_is_disabled(crs812: Crs812Process, connect: Connect) -> None:
    assert crs812.www_port is not None
    client = connect(crs812)
    assert plain(crs812).get("/system/identity")
    write(client, "www", "=disabled=yes")
    with pytest.raises(ConnectionRefusedError):
        RawClient(crs812.www_port)
    crs812.stop()
    crs812.start()
    with pytest.raises(ConnectionRefusedError):
        RawClient(crs812.www_port or 0)


def test_undoing_opens_a_door_again(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/safe-mode/take")
    write(client, "api", "=disabled=yes")
    client.close()

    def opened() -> bool:
        try:
            RawClient(crs812.plain_port).close()
        except ConnectionRefusedError:
            return False
        return True

    until(opened)


@pytest.mark.parametrize(("address", "let_in"), [("10.0.0.0/8", False), ("10.0.0.0/8,127.0.0.0/8", True), ("", True)])
def test_peers_outside_address_are_hung_up_on(
    crs812: Crs812Process, connect: Connect, address: str, let_in: bool
) -> None:
    client = connect(crs812)
    write(client, "api", f"=available-from={address}")
    other = RawClient(crs812.plain_port)
    if let_in:
        other.login(USER, crs812.password)
    else:
        with pytest.raises((EOFError, ConnectionError)):
            other.ask("/login", f"=name={USER}", f"=password={crs812.password}")
    other.close()


def test_a_service_takes_so_many_sessions(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    write(client, "api", "=max-sessions=2")
    second = connect(crs812)
    with pytest.raises((EOFError, ConnectionError)):
        connect(crs812)
    second.close()
    until(lambda: len(rows(client, "/ip/service", "?name=api", "?dynamic=true")) == 1)
    assert one(connect(crs812), "/system/identity")


def test_the_port_is_kept_and_the_door_stays_where_it_is(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    write(client, "api", "=port=1234")
    assert one(connect(crs812), "/ip/service", "?name=api", "?dynamic=false")["port"] == "1234"


def test_arguments_that_a_service_has_not(raw: RawClient) -> None:
    assert trap(raw.ask("/ip/service/set", "=numbers=api", "=tls-version=any")) == "unknown parameter tls-version"
    assert trap(raw.ask("/ip/service/set", "=numbers=api", "=comment=x")) == "unknown parameter comment"
    assert trap(raw.ask("/ip/service/add", "=name=x")) == "no such command"


@pytest.mark.parametrize(("version", "name"), [("7.23.7", "address"), ("7.24", "available-from")])
def test_the_name_of_the_list_of_peers_depends_on_the_version(
    make_switch: MakeSwitch, connect: Connect, version: str, name: str
) -> None:
    switch = make_switch(version=version)
    client = connect(switch)
    write(client, "api", f"={name}=10.0.0.0/8")
    assert one(client, "/ip/service", "?name=api", "?dynamic=false")[name] == "10.0.0.0/8"
    with pytest.raises((EOFError, ConnectionError)):
        connect(switch)


def test_clients_are_known_by_address_and_by_port(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    entry = one(client, "/ip/arp", "?address=127.0.0.1")
    assert (entry["interface"], entry["dynamic"], entry["complete"]) == ("bridge", "true", "true")
    mac = entry["mac-address"]

    def behind() -> list[str]:
        return [row["on-interface"] for row in rows(client, "/interface/bridge/host", f"?mac-address={mac}")]

    assert behind() == ["ether1"]
    crs812.control({"op": "learn", "address": "127.0.0.1", "interface": "qsfp56-dd-1-1"})
    assert behind() == ["qsfp56-dd-1-1"]
    assert behind() == [row["on-interface"] for row in rows(connect(crs812), "/interface/bridge/host", "?local=false")]
    with pytest.raises(RuntimeError, match="sfp99"):
        crs812.control({"op": "learn", "address": "127.0.0.1", "interface": "sfp99"})
    with pytest.raises(RuntimeError, match="nowhere"):
        crs812.control({"op": "learn", "address": "nowhere", "interface": "ether1"})

"""Hardware offload of bridge ports, which a port can lose although hw=yes; and the hosts behind ports."""

from __future__ import annotations

import pytest

from lab.routeros_emulator.config import CableTail, EmulatedCable
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, trap
from tests.emulator.test_links import GOOD
from tests.emulator.test_qos import done
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

BRIDGE, PORT, HOST = "/interface/bridge", "/interface/bridge/port", "/interface/bridge/host"


def offload(client: RawClient, name: str) -> tuple[str, str]:
    row = one(client, PORT, f"?interface={name}")
    return row["hw"], row["hw-offload"]


def by_cpu(client: RawClient, name: str) -> bool:
    """Whether the CPU takes frames: its counter grows as soon as the port has a link."""

    def row() -> dict[str, str]:
        return one(client, "/interface/ethernet", f"?name={name}")

    until(lambda: int(row()["rx-packet"]) > 0)
    return int(row()["driver-rx-packet"]) > 0


def test_a_stale_port_needs_hw_off_and_on_again(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    assert not by_cpu(client, "ether1")
    crs812.control({"op": "stale", "interface": "ether1"})
    assert offload(client, "ether1") == ("true", "true"), "the flags tell nothing"
    assert by_cpu(client, "ether1")
    done(client, f"{PORT}/set", "=numbers=ether1", "=hw=yes")
    assert by_cpu(client, "ether1"), "writing the value it has does not help"
    done(client, f"{PORT}/set", "=numbers=ether1", "=hw=no")
    assert offload(client, "ether1") == ("false", "false")
    done(client, f"{PORT}/set", "=numbers=ether1", "=hw=yes")
    assert offload(client, "ether1") == ("true", "true")
    assert not by_cpu(client, "ether1")


def test_a_stale_port_that_is_added_again_is_offloaded(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, "/interface/ethernet/set", "=numbers=ether1", "=name=uplink")
    crs812.control({"op": "stale", "interface": "ether1"})
    assert by_cpu(client, "uplink")
    done(client, f"{PORT}/remove", "=numbers=uplink")
    done(client, f"{PORT}/add", "=interface=uplink", "=bridge=bridge")
    assert not by_cpu(client, "uplink")


def test_filtering_keeps_offload_and_a_second_bridge_has_none(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    done(client, f"{BRIDGE}/set", "=numbers=bridge", "=vlan-filtering=yes", "=protocol-mode=mstp")
    done(client, f"{BRIDGE}/add", "=name=second")
    done(client, f"{PORT}/set", "=numbers=sfp56-1", "=bridge=second")
    without = {row["interface"] for row in rows(client, PORT) if row["hw-offload"] == "false"}
    assert without == {"sfp56-1"}
    done(client, f"{BRIDGE}/disable", "=numbers=bridge")
    assert {row["interface"] for row in rows(client, PORT) if row["hw-offload"] == "true"} == {"sfp56-1"}


def test_the_first_port_cannot_be_added_twice(raw: RawClient) -> None:
    """Its id is *0, which must not pass for "no row"."""
    first = one(raw, PORT, "?.id=*0")["interface"]
    words = [f"{PORT}/add", f"=interface={first}", "=bridge=bridge"]
    assert trap(raw.ask(*words)) == "failure: device already added as bridge port"


def test_an_interface_that_is_none_cannot_go_stale(shared: Crs812Process) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        shared.control({"op": "stale", "interface": "sfp56-9"})


def test_a_client_is_a_host_behind_the_management_port(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    (mac,) = [row["mac-address"] for row in rows(client, "/ip/arp")]
    learned = one(client, HOST, f"?mac-address={mac}")
    assert (learned["interface"], learned["bridge"], learned["local"]) == ("ether1", "bridge", "false")
    own = rows(client, HOST, "?local=true")
    assert len(own) == 34
    assert len({row[".id"] for row in rows(client, HOST)}) == 35
    done(client, "/interface/ethernet/set", "=numbers=ether1", "=name=management")
    assert one(client, HOST, f"?mac-address={mac}")["on-interface"] == "management"
    done(client, f"{PORT}/remove", "=numbers=management")
    assert rows(client, HOST, f"?mac-address={mac}") == [], "a port outside of a bridge learns nothing for it"


def test_nodes_are_hosts_behind_the_leg_they_are_plugged_into(make_switch: MakeSwitch, connect: Connect) -> None:
    macs = {1: "02:00:00:00:00:01", 3: "02:00:00:00:00:03"}
    tails = tuple(
        CableTail(lane=n, lanes=2, gbps=100, node=f"spark{n}", port=1, macs=(mac,)) for n, mac in macs.items()
    )
    switch = make_switch(cables=(EmulatedCable(cage="qsfp56-dd-1", tails=tails),))
    client = connect(switch)

    def where() -> dict[str, str]:
        known = {row["mac-address"]: row["interface"] for row in rows(client, HOST)}
        return {mac: known[mac] for mac in macs.values() if mac in known}

    assert where() == {}, "no link, no host"
    done(client, "/interface/ethernet/set", "=numbers=qsfp56-dd-1-1,qsfp56-dd-1-3", *GOOD)
    until(lambda: where() == {macs[1]: "qsfp56-dd-1-1", macs[3]: "qsfp56-dd-1-3"})
    other = {"cage": "qsfp56-dd-1", "lane": 3}
    switch.control({"op": "cable", "do": "swap", "cage": "qsfp56-dd-1", "lane": 1, "to": other})
    until(lambda: where() == {macs[1]: "qsfp56-dd-1-3", macs[3]: "qsfp56-dd-1-1"})
    switch.control({"op": "cable", "do": "deafen", **other})
    until(lambda: where() == {macs[3]: "qsfp56-dd-1-1"})

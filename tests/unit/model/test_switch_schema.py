"""How a switch is kept: every key as it is loaded, and what is so when none is written."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network

import pytest

from core.model import Reader, Snmp, load, timezones
from tests.unit.model.racks import KEPT, SWITCH, VALID, changed, faults, loaded


def test_every_key() -> None:
    rack = load(VALID / "kept.yaml")
    crs812 = rack.switches["crs812"]
    assert crs812.management == (IPv4Network("10.77.0.0/24"), IPv4Network("10.78.0.5/32"))
    assert crs812.reader == Reader(user="watcher", password={"env": "READER"}, port=8443)
    assert crs812.ntp == (IPv4Address("10.77.0.1"), IPv4Address("10.77.0.3"))
    assert crs812.dns == (IPv4Address("10.77.0.1"),)
    assert (crs812.time_zone, crs812.lldp, crs812.syslog, crs812.backups) == ("Europe/Berlin", True, "head", 25)
    assert isinstance(crs812.snmp, Snmp)
    assert crs812.snmp.user == "monitor"
    assert crs812.purge == ("bridge-ports", "bridge-vlans", "users", "scripts")
    assert rack.fabric.vlans == (1100, 1101)
    assert hash(rack) == hash(load(VALID / "kept.yaml"))
    assert [(str(leg), str(port), leg.gbps, leg.lanes) for leg, port in rack.cabling.legs("crs812")] == [
        ("crs812/qsfp56-1-3", "spark2/0", 50, (3, 4)),
        ("crs812/qsfp56-dd-1-1", "spark1/1", 25, (1,)),
        ("crs812/sfp56-3", "spark3/1", 50, (1,)),
    ]


def test_what_is_not_written_is_not_managed() -> None:
    rack = load(VALID / "switch.yaml")
    crs812 = rack.switches["crs812"]
    for key in ("management", "reader", "time_zone", "ntp", "dns", "lldp", "syslog", "snmp"):
        assert getattr(crs812, key) is None
    assert (crs812.purge, crs812.backups, rack.fabric.vlans) == ((), 10, None)


def test_off_is_not_the_same_as_not_managed() -> None:
    off = loaded(changed(SWITCH, ("l2mtu: 9500", "l2mtu: 9500\n    snmp: false\n    lldp: false")))
    assert (off.switches["crs812"].snmp, off.switches["crs812"].lldp) == (False, False)


def test_a_reader_needs_only_a_password() -> None:
    rack = loaded(changed(KEPT, ("{user: watcher, password: {env: READER}, port: 8443}", "{password: {env: READER}}")))
    reader = rack.switches["crs812"].reader
    assert reader
    assert (reader.user, reader.port) == ("sparkrack-reader", 443)


def test_syslog_to_a_machine_and_management_from_this_one() -> None:
    rack = loaded(changed(KEPT, ("syslog: head", "syslog: 10.77.0.9"), ("10.78.0.5/32", "127.0.0.0/8")))
    crs812 = rack.switches["crs812"]
    assert crs812.syslog == IPv4Address("10.77.0.9")
    assert crs812.management
    assert crs812.management[1] == IPv4Network("127.0.0.0/8")
    assert json.loads(rack.model_dump_json())["switches"]["crs812"]["syslog"] == "10.77.0.9"


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+1", "America/Argentina/Buenos_Aires", "America/Port-au-Prince"])
def test_time_zones(zone: str) -> None:
    assert loaded(changed(KEPT, ("Europe/Berlin", zone))).switches["crs812"].time_zone == zone


@pytest.mark.parametrize("zone", ["localtime", "Factory", "posixrules"])
def test_files_beside_the_time_zones(zone: str) -> None:
    assert faults(changed(KEPT, ("Europe/Berlin", zone)))[0].startswith("28: switches.crs812.time_zone: there is no")


def test_time_zones_on_a_machine_without_their_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezones, "_known_zones", dict)
    assert loaded(KEPT).switches["crs812"].time_zone == "Europe/Berlin"
    assert faults(changed(KEPT, ("Europe/Berlin", "'a b'"))) == [
        "28: switches.crs812.time_zone: a b is not the name of a time zone; write one like Europe/Berlin"
    ]


def test_the_room_for_a_tag_is_to_the_byte() -> None:
    exact = changed(KEPT, ("    bridge: fabric", "    bridge: fabric\n    l2mtu: 9004"))
    assert faults(exact) == []
    (fault,) = faults(exact.replace("9004", "9003"))
    assert fault.startswith("25: switches.crs812.l2mtu: 9003 has no room for a tagged packet of 9000 bytes; ")
    assert fault.endswith("write at least 9004, or remove fabric.vlans")
    assert faults(exact.replace("9004", "9003").replace("  vlans: [1100, 1101]\n", "")) == []

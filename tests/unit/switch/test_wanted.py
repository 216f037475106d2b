"""Each key of rack.yaml as rows of the switch; and what is not in the file is neither read nor written."""

from __future__ import annotations

from typing import Any

import pytest

from core.routeros.menus import MENUS
from switch.desired import DeviceContext, menus_of, optional_of, parts
from switch.target_state import DeclaredTarget
from tests.unit.switch.racks import EVERY_KEY, UNCABLED, MakeRack
from tests.unit.switch.rows import PORTS, QOS, asking, factory, reading, row

ALWAYS = {
    "/interface/ethernet",
    "/interface/bonding",
    "/interface/bridge",
    "/interface/bridge/port",
    "/interface/bridge/vlan",
    "/interface/bridge/host",
    "/system/identity",
    "/system/scheduler",
    "/system/script",
    "/safe-mode",
    "/system/device-mode",
    "/user",
    "/user/active",
    "/ip/arp",
    f"{QOS}/port",
}
"""What every run reads: to compare lanes and ports, to know who is connected, and to name what is left alone."""

SSL = {"tls": {"sha256": "00" * 32}}
READER = {"reader": {"password": {"env": "READER_PASSWORD"}, "port": 8443}}
SNMP = {"user": "monitor", "authentication": {"env": "A"}, "encryption": {"env": "E"}}
LEGS = tuple(f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7))


def rows(
    rack: MakeRack, seen: DeviceContext | None = None, **switch: Any
) -> dict[str, dict[tuple[str, ...], dict[str, str]]]:
    """What is wanted, by menu and key."""
    found: dict[str, dict[tuple[str, ...], dict[str, str]]] = {}
    for part in parts(*rack(**switch), seen or DeviceContext()):
        for share in part.shares:
            for want in share.rows:
                fields = {name: str(value) for name, value in want.fields.items()}
                found.setdefault(share.menu.path, {}).setdefault(want.key, {}).update(fields)
    return found


@pytest.mark.parametrize(
    ("keys", "path", "expected"),
    [
        ({"identity": "core"}, "/system/identity", {(): {"name": "core"}}),
        (
            {"time_zone": "Europe/Berlin"},
            "/system/clock",
            {(): {"time-zone-autodetect": "no", "time-zone-name": "Europe/Berlin"}},
        ),
        (
            {"ntp": ["10.77.0.3", "10.77.0.1"]},
            "/system/ntp/client",
            {(): {"enabled": "yes", "mode": "unicast", "servers": "10.77.0.3,10.77.0.1"}},
        ),
        ({"dns": ["10.77.0.1"]}, "/ip/dns", {(): {"servers": "10.77.0.1"}}),
        (
            {"lldp": True},
            "/ip/neighbor/discovery-settings",
            {(): {"discover-interface-list": "all", "protocol": "lldp", "mode": "tx-and-rx"}},
        ),
        ({"lldp": False}, "/ip/neighbor/discovery-settings", {(): {"discover-interface-list": "none"}}),
        (
            {"syslog": "head"},
            "/system/logging/action",
            {("sparkrack",): {"target": "remote", "remote": "10.77.0.11", "remote-log-format": "syslog"}},
        ),
        (
            {"syslog": "10.77.0.9"},
            "/system/logging",
            {(topic, "sparkrack"): {"disabled": "no"} for topic in ("info", "error", "warning", "critical")},
        ),
        ({"snmp": False}, "/snmp", {(): {"enabled": "no"}}),
        ({"snmp": SNMP}, "/snmp", {(): {"enabled": "yes", "trap-version": "3", "trap-community": "monitor"}}),
        (
            {"snmp": SNMP, "management": ["10.77.0.0/24", "10.78.0.0/24"]},
            "/snmp/community",
            {
                ("monitor",): {
                    "security": "private",
                    "read-access": "yes",
                    "write-access": "no",
                    "authentication-protocol": "SHA1",
                    "encryption-protocol": "AES",
                    "authentication-password": "environment variable A",
                    "encryption-password": "environment variable E",
                    "disabled": "no",
                    "addresses": "10.77.0.0/24,10.78.0.0/24",
                },
                ("public",): {"disabled": "yes"},
            },
        ),
        (
            {**SSL, **READER},
            "/user",
            {
                ("sparkrack-reader",): {
                    "group": "sparkrack-reader",
                    "password": "environment variable READER_PASSWORD",
                    "disabled": "no",
                }
            },
        ),
        ({**SSL, **READER}, "/user/group", {("sparkrack-reader",): {"policy": "read,rest-api"}}),
        ({**SSL, **READER}, "/ip/service", {("www-ssl",): {"disabled": "no", "port": "8443", "certificate": "none"}}),
        (
            {**SSL, "management": ["10.77.0.0/24"]},
            "/ip/service",
            {
                **{(name,): {"disabled": "yes"} for name in ("telnet", "ftp", "www", "api")},
                **{(name,): {"address": "10.77.0.0/24"} for name in ("api-ssl", "ssh", "winbox")},
            },
        ),
        ({"management": ["10.77.0.0/24"]}, "/tool/mac-server", {(): {"allowed-interface-list": "none"}}),
        ({"management": ["10.77.0.0/24"]}, "/tool/mac-server/mac-winbox", {(): {"allowed-interface-list": "none"}}),
        ({"management": ["10.77.0.0/24"]}, "/tool/mac-server/ping", {(): {"enabled": "no"}}),
        ({"management": ["10.77.0.0/24"]}, "/tool/bandwidth-server", {(): {"enabled": "no"}}),
        (
            {"vlans": [1101, 1100]},
            "/interface/bridge/vlan",
            {
                ("bridge", vlan): {"tagged": ",".join(LEGS), "comment": "sparkrack", "disabled": "no"}
                for vlan in ("1101", "1100")
            },
        ),
        (
            {"lossless": "roce"},
            f"{QOS}/port",
            {(leg,): {"trust-l3": "keep", "pfc": "pfc-tc3", "egress-rate-queue3": "100G"} for leg in LEGS},
        ),
        (
            {"lossless": "pause"},
            f"{QOS}/port",
            {(leg,): {"trust-l3": "ignore", "pfc": "disabled", "egress-rate-queue3": "0"} for leg in LEGS},
        ),
        (
            {"lossless": "roce"},
            f"{QOS}/profile",
            {
                ("roce",): {"dscp": "26", "traffic-class": "3", "automap": "yes"},
                ("cnp",): {"dscp": "48", "traffic-class": "6", "automap": "yes"},
            },
        ),
        (
            {"lossless": "roce"},
            f"{QOS}/tx-manager/queue",
            {
                ("default", "1"): {"schedule": "high-priority-group", "weight": "1"},
                ("default", "3"): {"schedule": "high-priority-group", "weight": "1", "ecn": "yes"},
                ("default", "6"): {"schedule": "strict-priority"},
            },
        ),
        (
            {"lossless": "roce"},
            f"{QOS}/priority-flow-control",
            {("pfc-tc3",): {"traffic-class": "3", "rx": "yes", "tx": "yes"}},
        ),
        ({"lossless": "roce"}, f"{QOS}/settings", {(): {"lossless-traffic-class": "3", "lossless-buffers": "auto"}}),
        ({"lossless": "roce"}, "/ip/neighbor/discovery-settings", {(): {"lldp-dcbx": "yes"}}),
        (
            {},
            "/interface/bridge/port",
            {(leg,): {"bridge": "bridge", "hw": "yes", "disabled": "no"} for leg in LEGS},
        ),
    ],
)
def test_a_key_and_its_rows(rack: MakeRack, keys: dict[str, Any], path: str, expected: object) -> None:
    assert rows(rack, **keys)[path] == expected


def test_without_tls_the_plain_api_stays_on_and_is_limited(rack: MakeRack) -> None:
    services = rows(rack, tls=False, management=["10.77.0.0/24"])["/ip/service"]
    assert services[("api",)] == {"address": "10.77.0.0/24"}
    assert services[("telnet",)] == {"disabled": "yes"}


def test_the_reader_is_limited_and_sees_the_certificate_of_the_api(rack: MakeRack) -> None:
    found = rows(rack, DeviceContext(certificate="own"), **SSL, **READER, management=["10.77.0.0/24"])
    assert found["/ip/service"][("www-ssl",)] == {
        "disabled": "no",
        "port": "8443",
        "certificate": "own",
        "address": "10.77.0.0/24",
    }
    assert found["/user"][("sparkrack-reader",)]["address"] == "10.77.0.0/24"


def test_legs_go_by_the_name_they_have_now(rack: MakeRack) -> None:
    tables = factory()
    row(tables, "qsfp56-dd-1-1")["name"] = "rack-a"
    found = rows(rack, DeviceContext.of(reading(tables)), vlans=[1100, 1101], lossless="roce")
    for path in ("/interface/bridge/port", f"{QOS}/port"):
        assert ("rack-a",) in found[path]
        assert ("qsfp56-dd-1-1",) not in found[path]
    assert found["/interface/bridge/vlan"][("bridge", "1100")]["tagged"].startswith("rack-a,")


def test_the_rate_of_a_leg_follows_from_its_split(rack: MakeRack) -> None:
    cages = {"qsfp56-dd-1": {"split": "2x200G"}, "sfp56-1": {"split": "1x50G"}}
    found = rows(rack, nodes=UNCABLED, cages=cages, lossless="roce")[f"{QOS}/port"]
    rates = {key[0]: fields["egress-rate-queue3"] for key, fields in found.items()}
    assert rates == {"qsfp56-dd-1-1": "200G", "qsfp56-dd-1-5": "200G", "sfp56-1": "50G"}


def test_what_is_not_in_the_file_is_not_read(rack: MakeRack) -> None:
    assert {menu.path for menu in menus_of(*rack())} == ALWAYS


NEW = {
    "time_zone": {"/system/clock"},
    "ntp": {"/system/ntp/client"},
    "dns": {"/ip/dns"},
    "lldp": {"/ip/neighbor/discovery-settings"},
    "syslog": {"/system/logging", "/system/logging/action"},
    "snmp": {"/snmp", "/snmp/community"},
    "purge": set(),
    "vlans": set(),
    "management": {
        "/ip/service",
        "/tool/mac-server",
        "/tool/mac-server/mac-winbox",
        "/tool/mac-server/ping",
        "/tool/bandwidth-server",
    },
    "lossless": {
        "/ip/neighbor/discovery-settings",
        *(f"{QOS}/{menu}" for menu in ("settings", "profile", "tx-manager/queue", "priority-flow-control")),
    },
}


@pytest.mark.parametrize("key", NEW)
def test_a_key_makes_its_own_menus_be_read_and_no_others(rack: MakeRack, key: str) -> None:
    asked: list[str] = []
    goal = DeclaredTarget(*rack(**{key: EVERY_KEY[key]}))
    goal.read(asking(factory(), asked))
    assert set(asked) - ALWAYS - {"/system/resource", "/system/routerboard", "/system/package"} == NEW[key]
    assert len(asked) == len(set(asked)), "each menu once"


def test_every_menu_is_reached_by_some_key(rack: MakeRack) -> None:
    read = {menu.path for menu in menus_of(*rack(**EVERY_KEY))}
    unit = {"/system/resource", "/system/routerboard", "/system/package"}
    assert {menu.path for menu in MENUS} - read == unit


def test_only_without_roce_a_switch_may_lack_the_tables_of_the_chip(rack: MakeRack) -> None:
    tables = {path: rows for path, rows in factory().items() if not path.startswith(QOS)}
    assert [menu.path for menu in optional_of(*rack())] == [f"{QOS}/port"]
    goal = DeclaredTarget(*rack(lossless="none"))
    assert not any(change.menu.path.startswith(QOS) for change in goal.plan(goal.read(asking(tables))).changes)
    with pytest.raises(OSError, match="no such command"):
        DeclaredTarget(*rack(lossless="roce")).read(asking(tables))


def test_marks_of_congestion_alone_need_no_table_of_flow_control(rack: MakeRack) -> None:
    asked: list[str] = []
    DeclaredTarget(*rack(lossless="ecn")).read(asking(factory(), asked))
    new = {f"{QOS}/{menu}" for menu in ("profile", "tx-manager/queue")}
    assert {path for path in asked if path.startswith(QOS)} == {*new, f"{QOS}/port"}
    assert "/ip/neighbor/discovery-settings" not in asked


def test_a_policy_that_is_left_is_neither_read_nor_wanted(rack: MakeRack) -> None:
    asked: list[str] = []
    goal = DeclaredTarget(*rack(lossless="leave"))
    tables = factory()
    row(tables, "qsfp56-dd-1-1").update({"rx-flow-control": "on", "tx-flow-control": "auto"})
    changes = goal.plan(goal.read(asking(tables, asked))).changes
    assert not [path for path in asked if path.startswith(QOS)]
    assert not [field for change in changes for field in change.fields if "flow-control" in field.name]


def test_without_cages_the_ports_are_no_ones_business(rack: MakeRack) -> None:
    found = rows(rack, nodes=UNCABLED, cages={}, lossless="roce")
    assert set(found) == {"/system/identity"}
    assert len(PORTS) == 34


def test_scripts_and_their_times_are_removed_where_purge_names_them(rack: MakeRack) -> None:
    def purged(**switch: Any) -> dict[str, bool]:
        return {
            share.menu.path: share.purge
            for part in parts(*rack(**switch), DeviceContext())
            for share in part.shares
            if share.menu.path in ("/system/script", "/system/scheduler", "/user")
        }

    assert purged(purge=["scripts"]) == {"/user": False, "/system/scheduler": True, "/system/script": True}
    assert purged(purge=["users"]) == {"/user": True}

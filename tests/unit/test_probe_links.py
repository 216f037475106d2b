"""What `ip -j` and ethtool print, parsed: nothing is made up where they print something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.probes.links import IpLink, VlanLink, parse_ethtool, parse_ethtool_of_all, parse_ip_links

ROW: dict[str, Any] = {
    "ifname": "fabric0",
    "link": "enp1s0f1np1",
    "flags": ["UP"],
    "mtu": 9000,
    "address": "02:AA:00:00:00:01",
    "linkinfo": {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": 7}},
    "addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}, {"family": "inet6", "local": "fe80::1"}],
}
CABLED = "Settings for a:\n\tSpeed: 100000Mb/s\n\tLink detected: yes\n"


def test_an_interface() -> None:
    vlan = VlanLink(7, "802.1Q", "enp1s0f1np1")
    link = IpLink("02:aa:00:00:00:01", frozenset({"UP"}), 9000, ("10.0.0.1/24",), vlan)
    assert parse_ip_links(json.dumps([ROW, {}])) == {"fabric0": link}


def test_what_is_missing_is_unknown() -> None:
    assert parse_ip_links('[{"ifname": "a"}]') == {"a": IpLink("", None, None, None, None)}


@pytest.mark.parametrize(
    "changed",
    [
        {"ifname": 7},
        {"mtu": "9000"},
        {"flags": 7},
        {"addr_info": 7},
        {"addr_info": [{"family": "inet"}]},
        {"linkinfo": 7},
        {"linkinfo": {"info_kind": "vlan"}},
        {"linkinfo": {"info_kind": "vlan", "info_data": {"id": "x", "protocol": "802.1Q"}}},
    ],
)
def test_an_unknown_form_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json or of ours
        parse_ip_links(json.dumps([{**ROW, **changed}]))


@pytest.mark.parametrize("text", ["", "garbage", "{}", "[7]", "null", "[{}"])
def test_what_is_not_a_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json or of ours
        parse_ip_links(text)


@pytest.mark.parametrize("reason", ["", " (No cable)", " (Autoneg, No partner detected)"])
def test_no_link_with_its_reason(reason: str) -> None:
    report = parse_ethtool(f"Speed: Unknown!\n\tLink detected: no{reason}\n")
    assert (report.carrier, report.mbps, report.link) == (False, None, f"no{reason}")


def test_ethtool() -> None:
    report = parse_ethtool(f"{CABLED}FEC parameters for a:\nActive FEC encodings: RS \n")
    assert (report.carrier, report.mbps, report.fec) == (True, 100000, "RS")


@pytest.mark.parametrize("speed", ["Unknown!", "1e5Mb/s", "١٠Mb/s", "-1Mb/s", "100000", "12345678Mb/s"])
def test_no_speed(speed: str) -> None:
    assert parse_ethtool(CABLED.replace("100000Mb/s", speed)).mbps is None


@pytest.mark.parametrize("link", ["", "maybe", "YES"])
def test_a_carrier_that_is_unknown(link: str) -> None:
    assert parse_ethtool(CABLED.replace("yes", link)).carrier is None


def test_several_interfaces() -> None:
    reports = parse_ethtool_of_all(CABLED + CABLED.replace("for a", "for b").replace("yes", "no"))
    assert {name: report.carrier for name, report in reports.items()} == {"a": True, "b": False}
    assert parse_ethtool_of_all("") == {}
    with pytest.raises(ValueError, match="unexpected output of ethtool: 'netlink error'"):
        parse_ethtool_of_all(f"netlink error\n{CABLED}")

"""Machines that make themselves known, and packets and lines that are none."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import IPVersion, ServiceInfo, Zeroconf
from zeroconf._dns import DNSPointer
from zeroconf._protocol.outgoing import DNSOutgoing

from core.model.errors import printable_line
from sparkrack.discovery import neighbours
from sparkrack.discovery.advertisements import SSH_SERVICE, Advertised, lldp, mdns, mndp


def lldp_neighbour(interface: str, name: str, what: str, *addresses: str) -> dict[str, object]:
    """One neighbour, in the form that lldpd's own test of json0 has (tests/integration/test_lldpcli.py)."""
    chassis = {
        "id": [{"type": "mac", "value": "48:a9:8a:00:00:01"}],
        "name": [{"value": name}],
        "descr": [{"value": what}],
        "mgmt-ip": [{"value": one} for one in addresses],
        "capability": [{"type": "Bridge", "enabled": True}, {"type": "Wlan", "enabled": False}],
    }
    port = {"id": [{"type": "ifname", "value": "ether1"}], "ttl": [{"value": "120"}]}
    age = "0 day, 00:00:23"
    return {"name": interface, "via": "LLDP", "rid": "1", "age": age, "chassis": [chassis], "port": [port]}


MIKROTIK = "MikroTik RouterOS 7.23.7 (long-term) CRS812-8DS-2DQ-2DDQ"
LLDP = json.dumps(
    {
        "lldp": [
            {
                "interface": [
                    lldp_neighbour("eth0", "crs812", MIKROTIK, "fe80::1", "10.77.0.2"),
                    lldp_neighbour("eth1", "printer", "Laser", "10.77.0.3"),
                    lldp_neighbour("eth1", "no-address", MIKROTIK),
                    {"name": "eth2", "chassis": [{"id": [{"type": "local", "value": "1"}]}]},
                ]
            }
        ]
    }
)


def part(kind: int, value: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value


PACKET = bytes(4) + b"".join(
    part(kind, value)
    for kind, value in (
        (1, bytes.fromhex("48a98a000001")),
        (5, b"crs812"),
        (7, b"7.23.7"),
        (12, b"CRS812-8DS-2DQ-2DDQ"),
        (17, bytes((192, 168, 88, 1))),
    )
)


def test_mdns_tells_each_ipv4_address_of_a_machine_that_offers_ssh() -> None:
    assert mdns("spark-1a2b._ssh._tcp.local.", "spark-1a2b.local.", ["10.77.0.11", "192.168.7.11"]) == (
        Advertised("spark-1a2b", "10.77.0.11", "spark-1a2b"),
        Advertised("spark-1a2b", "192.168.7.11", "spark-1a2b"),
    )
    assert mdns("Office \x1bMac._ssh._tcp.local.", "office-mac.local.", ["10.77.0.9"]) == (
        Advertised("office-mac", "10.77.0.9", printable_line("Office \x1bMac")),
    )
    assert mdns("spark-3c4d._ssh._tcp.local.", "", ["10.77.0.12"])[0].name == "spark-3c4d"


@pytest.mark.parametrize(
    ("host", "address"),
    [("b\x1bad.local.", "10.77.0.8"), ("a.b.local.", "10.77.0.8"), ("a", "fe80::1"), ("a", str(IPv4Address(0)))],
)
def test_mdns_tells_no_name_that_is_none_and_no_address_that_cannot_be_reached(host: str, address: str) -> None:
    assert mdns("x._ssh._tcp.local.", host, [address]) == ()


def test_lldp_tells_mikrotiks_only() -> None:
    assert lldp(LLDP) == (Advertised("crs812", "10.77.0.2", MIKROTIK),)


@pytest.mark.parametrize("output", ["", "null", '{"lldp": [{}]}', '{"lldp": 7}', "[" * 100_000, LLDP[:-1]])
def test_lldp_without_neighbours_or_that_is_not_a_json_tells_nothing(output: str) -> None:
    assert lldp(output) == ()


def test_a_packet_of_mndp_tells_a_unit() -> None:
    assert mndp(PACKET, "10.0.0.1") == Advertised("crs812", "192.168.88.1", "CRS812-8DS-2DQ-2DDQ")
    assert mndp(PACKET[: -len(part(17, bytes(4)))], "10.0.0.1") == Advertised(
        "crs812", "10.0.0.1", "CRS812-8DS-2DQ-2DDQ"
    )


@pytest.mark.parametrize("packet", [b"", bytes(4), PACKET[:-1], PACKET + b"x", bytes(4) + part(5, b"no mac")])
def test_what_is_no_such_packet_is_nothing(packet: bytes) -> None:
    assert mndp(packet, "10.0.0.1") is None


@given(st.binary(max_size=64), st.text(max_size=64))
def test_nothing_that_is_sent_can_break_it(packet: bytes, text: str) -> None:
    found = mndp(packet, "10.0.0.1")
    document = json.dumps({"lldp": [{"interface": [lldp_neighbour("eth0", text, f"MikroTik {text}", "10.77.0.2")]}]})
    heard = (*mdns(text, text, ["10.77.0.2"]), *mdns(text, "a", [text]), *lldp(text), *lldp(document))
    for one in (*heard, *([found] if found else [])):
        assert (one.name + one.what).isprintable()


def test_a_unit_that_answers_is_heard_and_no_one_is_waited_for_longer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.88.1", 0))
        port = taken.getsockname()[1]
    heard: list[Advertised] = []
    listening = threading.Thread(target=lambda: heard.extend(neighbours.switches("127.0.88.1", port, seconds=3)))
    listening.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unit:
        while listening.is_alive():
            unit.sendto(PACKET, ("127.0.88.1", port))
            listening.join(0.1)
    assert Advertised("crs812", "192.168.88.1", "CRS812-8DS-2DQ-2DDQ") in heard


def ssh_on_loopback(name: str, *addresses: str) -> ServiceInfo:
    service = f"{name}.{SSH_SERVICE}"
    return ServiceInfo(SSH_SERVICE, service, port=22, server=f"{name}.local.", parsed_addresses=list(addresses))


def test_nodes_that_announce_ssh_are_found_and_other_announcements_are_not() -> None:
    # Names of this process: other tests may announce on this machine's loopback interface, too.
    spark, clone, web = (f"{kind}-{os.getpid()}" for kind in ("spark", "clone", "web"))
    http = "_http._tcp.local."
    announced = [
        ssh_on_loopback(spark, "10.77.0.11", "fe80::1"),
        ssh_on_loopback(clone, "10.77.0.12"),
        ServiceInfo(http, f"{web}.{http}", port=80, server=f"{web}.local.", parsed_addresses=["10.77.0.13"]),
    ]
    with Zeroconf(["127.0.0.1"], ip_version=IPVersion.V4Only) as announcer:
        for one in announced:
            announcer.register_service(one)
        # An announcement whose name is of another type than it is announced under.
        hostile = DNSOutgoing(0x8400)
        hostile.add_answer_at_time(DNSPointer(SSH_SERVICE, 12, 1, 120, f"{web}.{http}"), 0)
        sending = threading.Timer(0.5, lambda: announcer.send(hostile))
        sending.start()
        found, why = neighbours.nodes(["127.0.0.1"], seconds=5)
        sending.join()
    assert why == ""
    own = [one for one in found if one.name.endswith(f"-{os.getpid()}")]
    assert sorted(own, key=lambda one: one.address) == [
        Advertised(spark, "10.77.0.11", spark),
        Advertised(clone, "10.77.0.12", clone),
    ]


def test_an_address_that_this_machine_does_not_have_is_not_listened_on() -> None:
    assert neighbours.nodes(["192.0.2.1"], seconds=0) == (
        (),
        "mDNS cannot be used here (No such device), so nodes are not looked for",
    )


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EPERM, "not permitted"), RuntimeError("not permitted")],
    ids=["refused", "no address"],  # zeroconf raises RuntimeError where no interface has an IPv4 address
)
def test_a_machine_that_cannot_listen_says_why(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(neighbours, "AsyncZeroconf", refused)
    why = "mDNS cannot be used here (not permitted), so nodes are not looked for"
    assert neighbours.nodes(["127.0.0.1"], seconds=0) == ((), why)


def test_switches_are_asked_of_lldpd_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "answer").write_text(LLDP)
    tool = tmp_path / "lldpcli"
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = '-f json0 show neighbors' ] && /bin/cat '{tmp_path}/answer'\n")
    tool.chmod(0o755)
    with socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM
    ) as taken:  # so that MikroTik's own protocol is not listened to
        taken.bind(("127.0.88.2", 0))
        assert neighbours.switches("127.0.88.2", taken.getsockname()[1]) == (
            Advertised("crs812", "10.77.0.2", MIKROTIK),
        )

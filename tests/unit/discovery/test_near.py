"""Machines that make themselves known, and packets and lines that are none."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrack.discovery import listen
from sparkrack.discovery.near import Near, avahi, lldp, mndp

AVAHI = """\
+;enP7s7;IPv4;spark-1a2b;_ssh._tcp;local
=;enP7s7;IPv6;spark-1a2b;_ssh._tcp;local;spark-1a2b.local;fe80::1;22;
=;enP7s7;IPv4;spark-1a2b;_ssh._tcp;local;spark-1a2b.local;10.77.0.11;22;
=;enP7s7;IPv4;Office\\032Mac;_ssh._tcp;local;office-mac.local;10.77.0.9;22;"x=;y"
=;enP7s7;IPv4;bad;_ssh._tcp;local;b\x1bad.local;10.77.0.8;22;
=;enP7s7;IPv4;half
"""
LLDP = """\
lldp.eth0.via=LLDP
lldp.eth0.chassis.mac=48:a9:8a:00:00:01
lldp.eth0.chassis.name=crs812
lldp.eth0.chassis.descr=MikroTik RouterOS 7.23.7 (long-term) CRS812-8DS-2DQ-2DDQ
lldp.eth0.chassis.mgmt-ip=10.77.0.2
lldp.eth0.chassis.mgmt-ip=fe80::1
lldp.eth1.chassis.name=printer
lldp.eth1.chassis.descr=Laser
lldp.eth1.chassis.mgmt-ip=10.77.0.3
"""


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


def test_avahi_tells_names_and_addresses_of_who_offers_ssh() -> None:
    assert avahi(AVAHI) == (
        Near("spark-1a2b", "10.77.0.11", "spark-1a2b"),
        Near("office-mac", "10.77.0.9", "Office Mac"),
    )


def test_lldp_tells_mikrotiks_only() -> None:
    assert lldp(LLDP) == (Near("crs812", "10.77.0.2", "MikroTik RouterOS 7.23.7 (long-term) CRS812-8DS-2DQ-2DDQ"),)


def test_a_packet_of_mndp_tells_a_unit() -> None:
    assert mndp(PACKET, "10.0.0.1") == Near("crs812", "192.168.88.1", "CRS812-8DS-2DQ-2DDQ")
    assert mndp(PACKET[: -len(part(17, bytes(4)))], "10.0.0.1") == Near("crs812", "10.0.0.1", "CRS812-8DS-2DQ-2DDQ")


@pytest.mark.parametrize("packet", [b"", bytes(4), PACKET[:-1], PACKET + b"x", bytes(4) + part(5, b"no mac")])
def test_what_is_no_such_packet_is_nothing(packet: bytes) -> None:
    assert mndp(packet, "10.0.0.1") is None


@given(st.binary(max_size=64), st.text(max_size=64))
def test_nothing_that_is_sent_can_break_it(packet: bytes, text: str) -> None:
    found = mndp(packet, "10.0.0.1")
    for one in (*avahi(text), *lldp(text), *([found] if found else [])):
        assert one.name.isprintable()


def test_a_unit_that_answers_is_heard_and_nobody_is_waited_for_longer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.88.1", 0))
        port = taken.getsockname()[1]
    heard: list[Near] = []
    listening = threading.Thread(target=lambda: heard.extend(listen.switches("127.0.88.1", port, seconds=3)))
    listening.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unit:
        while listening.is_alive():
            unit.sendto(PACKET, ("127.0.88.1", port))
            listening.join(0.1)
    assert Near("crs812", "192.168.88.1", "CRS812-8DS-2DQ-2DDQ") in heard


def test_without_avahi_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert listen.nodes() == ((), "avahi-browse is not installed (package avahi-utils), so nodes are not looked for")
    tool = tmp_path / "avahi-browse"
    tool.write_text("#!/bin/sh\nexit 3\n")
    tool.chmod(0o755)
    assert listen.nodes() == ((), "avahi-browse ended with 3")
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = '-rpt _ssh._tcp' ] && printf '%s' '{AVAHI.splitlines()[2]}'\n")
    assert listen.nodes() == ((Near("spark-1a2b", "10.77.0.11", "spark-1a2b"),), "")
    assert os.access(tool, os.X_OK)

"""What a probe shows of a switch: nothing that is not known to be harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.anonymize import Mask

MACS = ("48:A9:8A:11:22:30", "48:A9:8A:11:22:31", "48:A9:8A:99:00:01", "02:AA:BB:CC:DD:EE", "FF:FF:FF:FF:FF:FF")


def mask(*rows: dict[str, str]) -> Mask:
    return Mask.of([rows])


def shown(name: str, value: str, path: str = "/x", **more: str) -> str:
    """One field of a row that was made anonymous."""
    row = {name: value, **more}
    return mask(row).row(path, row)[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("anything", value) for value in ("true", "17", "200Gbps", "5m", "1d2h", "00:05:00", "2026-11-20 10:00:00")),
        *(("anything", value) for value in ("0x8000", "auto", "", "41C", "-3.5dBm", "unlimited/unlimited")),
        *(
            ("anything", value)
            for value in ("10.1.2.3", "192.168.88.0/24", "172.16.0.1", "127.0.0.1", "169.254.0.1", "::")
        ),
        ("speed", "100G-baseCR2"),
        ("version", "7.23.7 (long-term)"),
        ("policy", "read,write,!ftp"),
        ("interface", "qsfp56-dd-1-3"),
        ("tagged", "ether1,qsfp56-dd-1-3,sfp56-8,bridge"),
        ("discover-interface-list", "!dynamic"),
        ("pfc", "pfc-tc3"),
        ("user", "admin"),
        ("group", "sparkrack-reader"),
        ("skin", "default"),
        ("trap-community", "public"),
        ("action", "memory"),
        ("certificate", "none"),
        ("vrf", "main"),
        ("igmp-snooping", "false"),
    ],
)
def test_what_everybody_has_is_shown(name: str, value: str) -> None:
    assert shown(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anything", "berlin"),
        ("anything", "hunter2"),
        ("anything", "a,berlin"),
        ("comment", "17"),
        ("contact", "5550100"),
        ("source", "10"),
        ("pin", "1234"),
        ("authentication-password", "12345678"),
        ("engine-id", "80003"),
        ("eeprom", "0102030405"),
        ("interface", "uplink-berlin"),
        ("tagged", "ether1,uplink-berlin"),
        ("owner", "berlin"),
        ("time-zone-name", "Europe/Berlin"),
        ("gmt-offset", "+02:00"),
        ("serial-number", "1234"),
        ("sfp-vendor-serial", "1234"),
        ("sfp-manufacturing-date", "26-01-05"),
        ("anything", "8.8.8.8"),
        ("anything", "8.8.8.0/24"),
        ("anything", "8.8.8.8:443"),
        ("anything", "2a00:1450:4001::1"),
        ("anything", "fe80::4aa9:8aff:fe11:2230"),
        ("anything", "48:A9:8A:11:22:30"),
        ("anything", "0x8000.48:A9:8A:11:22:30"),
        ("version", "7.23 of 8.8.8.8"),
    ],
)
def test_what_may_be_the_owners_is_not(name: str, value: str) -> None:
    found = shown(name, value)
    assert found
    assert not {part for part in value.split(",") if part != "ether1"} & set(found.split(","))
    for part in ("berlin", "8.8.8", "11:22:30", "1450", "2230"):
        assert part not in found.lower()


def test_a_serial_number_is_found_in_other_words() -> None:
    rows = ({"serial-number": "HX70AB12"}, {"version": "7.23 of HX70AB12"})
    masked = mask(*rows)
    assert [masked.row("/x", row) for row in rows] == [{"serial-number": "SERIAL-1"}, {"version": "7.23 of SERIAL-1"}]
    assert masked.words("failure: HX70AB12 at 48:A9:8A:11:22:30") == "failure: SERIAL-1 at 00:00:00:00:00:00"


def test_macs_keep_vendor_and_neighbourhood() -> None:
    rows = [{"mac-address": mac} for mac in MACS]
    masked = mask(*rows)
    assert [masked.row("/x", row)["mac-address"] for row in rows] == [
        "48:A9:8A:00:00:00",
        "48:A9:8A:00:00:01",
        "48:A9:8A:00:01:01",
        "02:00:00:00:00:00",
        "FF:FF:FF:FF:FF:FF",
    ]


def test_the_same_text_gets_the_same_replacement() -> None:
    rows = [{"user": "alice"}, {"name": "alice"}, {"name": "bob"}, {"comment": "x"}, {"comment": "x"}]
    masked = mask(*rows)
    found = [masked.row("/user", row) for row in rows]
    assert found[:3] == [{"user": "user-1"}, {"name": "user-1"}, {"name": "user-2"}]
    assert found[3] == found[4]


def test_what_a_unit_would_run_is_a_comment() -> None:
    assert shown("source", ":put secret") == "# text-1"


FORMS = st.sampled_from([*MACS, "8.8.8.8", "9.9.0.0/16", "10.0.0.1", "2a00::1", "::/0", "8.8.8.8,9.9.9.9", "5m", ""])
TEXT = st.text(alphabet="abc019.:,/-# ", max_size=20)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "anything": FORMS | TEXT,
        "address": FORMS,
        **dict.fromkeys(("comment", "source", "interface", "user", "serial-number", "sfp-vendor-serial"), TEXT),
    },
)


@given(st.lists(ROWS, max_size=6))
def test_what_was_made_anonymous_stays_as_it_is(rows: list[dict[str, str]]) -> None:
    first = mask(*rows)
    once = [first.row("/x", row) for row in rows]
    second = mask(*once)
    assert [second.row("/x", row) for row in once] == once


def test_an_address_beside_a_mac_address_is_replaced() -> None:
    """As in a line of `ip neighbour`."""
    line = "2a02:810a:8f40::17 dev enP7s7 lladdr 02:AA:BB:CC:DD:EE REACHABLE"
    found = Mask.of([], [line]).words(line)
    assert "2a02" not in found
    assert "02:AA" not in found
    assert found.endswith("REACHABLE")

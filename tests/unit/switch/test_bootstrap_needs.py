"""What a switch from its box lacks, and which certificate it has to show. No network."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from core.model import Switch, load
from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import BRIDGE, GROUP, SERVICE, USER, Row
from core.routeros.reading import SwitchReading
from core.routeros.rollback_timer import POLICY
from lab.routeros_emulator.schema import tree
from switch.bootstrap.certificates import Choice, choose, sign, template
from switch.bootstrap.menus import ADDRESS, CERTIFICATE, CLOCK, GATE, OWNER_GROUP, OWNER_POLICY, PLACEHOLDER, READ
from switch.bootstrap.missing import Situation, missing
from switch.desired.access import READER_POLICY

TODAY = date(2026, 11, 20)
PIN, OTHER = "ab" * 32, "cd" * 32
MADE = {"private-key": "true", "key-size": "2048", "key-usage": "digital-signature,tls-server", "fingerprint": PIN}


@pytest.fixture(scope="module")
def switch() -> Switch:
    return load(Path(__file__).parents[3] / "examples/rack.yaml").switches["crs812"]


def reading(certificates: tuple[Row, ...] = (), **tables: tuple[Row, ...]) -> SwitchReading:
    """A switch from its box, some of its tables replaced (by the last word of their path)."""
    rows: dict[str, tuple[Row, ...]] = {
        CERTIFICATE.path: certificates,
        SERVICE.path: (
            {".id": "*7", "name": "api", "port": "8728", "disabled": "false"},
            {".id": "*8", "name": "api-ssl", "port": "8729", "certificate": "none", "disabled": "false"},
        ),
        GROUP.path: ({".id": "*1", "name": "full", "policy": "read,write"},),
        USER.path: ({".id": "*1", "name": "admin", "group": "full", "disabled": "false"},),
        ADDRESS.path: ({".id": "*1", "address": "192.168.88.1/24", "interface": "bridge", "disabled": "false"},),
        BRIDGE.path: ({".id": "*24", "name": "bridge"},),
        CLOCK.path: ({"date": "2026-11-20", "time": "10:00:00"},),
    }
    rows |= {path: tables[name] for path in rows if (name := path.rpartition("/")[2]) in tables}
    return SwitchReading((7, 23, 7, 0), rows)


def row(name: str, **more: str) -> Row:
    return {".id": f"*{len(name)}", "name": name, **MADE, **{key.replace("_", "-"): text for key, text in more.items()}}


BOX = Situation(host="192.168.88.1", given="192.168.88.1", prefix=24, today=TODAY)


def lines(switch: Switch, found: SwitchReading, situation: Situation = BOX) -> list[str]:
    return list(missing(switch, found, situation).lines)


# Certificates

SIGNED_LATER = {".id": "*9", "name": "sparkrack", "key-size": "2048", "key-usage": "tls-server"}


@pytest.mark.parametrize(
    ("rows", "choice"),
    [
        ((), Choice("sparkrack")),
        ((row("sparkrack"),), Choice("sparkrack", PIN)),
        ((row("sparkrack", fingerprint=":".join(["AB"] * 32)),), Choice("sparkrack", PIN)),
        ((SIGNED_LATER,), Choice("sparkrack", template="*9")),
        (({**SIGNED_LATER, "key-size": "1024"},), Choice("sparkrack-2")),
        (({**SIGNED_LATER, "key-usage": "tls-client"},), Choice("sparkrack-2")),
        ((row("sparkrack", expired="true"),), Choice("sparkrack-2")),
        ((row("sparkrack", revoked="yes"),), Choice("sparkrack-2")),
        ((row("sparkrack", private_key="false"),), Choice("sparkrack-2")),
        ((row("sparkrack", fingerprint=PLACEHOLDER),), Choice("sparkrack", template="*9")),
        ((row("sparkrack", expired="true"), row("sparkrack-2", fingerprint=OTHER)), Choice("sparkrack-2", OTHER)),
        ((row("mine"),), Choice("sparkrack")),
    ],
)
def test_which_certificate(rows: tuple[Row, ...], choice: Choice) -> None:
    assert choose(reading(rows), PLACEHOLDER) == choice


def test_what_is_pinned_comes_before_what_is_shown_and_that_before_ours() -> None:
    shown: tuple[Row, ...] = (
        {".id": "*7", "name": "api", "port": "8728", "disabled": "false"},
        {".id": "*8", "name": "api-ssl", "port": "8729", "certificate": "shown", "disabled": "false"},
    )
    rows = (row("sparkrack", fingerprint=OTHER), row("shown", fingerprint="ef" * 32), row("pinned", key_size="1024"))
    assert choose(reading(rows, service=shown), PIN) == Choice("pinned", PIN)
    assert choose(reading(rows, service=shown), PLACEHOLDER) == Choice("shown", "ef" * 32)
    assert choose(reading(rows), PLACEHOLDER) == Choice("sparkrack", OTHER)


def test_an_unreadable_certificate() -> None:
    with pytest.raises(UnreadableError, match="/certificate expired: 'perhaps' is neither yes nor no"):
        choose(reading((row("sparkrack", expired="perhaps"),)), PLACEHOLDER)


# Everything

FROM_THE_BOX = [
    "+ /certificate sparkrack: made on the switch",
    f"~ rack.yaml tls.sha256 {PLACEHOLDER} -> (what is made)",
    "~ /ip/service api-ssl: certificate none -> sparkrack",
    f"+ /user/group sparkrack: policy {OWNER_POLICY}",
]


def test_from_the_box(switch: Switch) -> None:
    found = lines(switch, reading())
    assert found[:4] == FROM_THE_BOX
    assert found[4:6] == [
        "+ /user sparkrack: group sparkrack, password (environment variable CRS812_PASSWORD)",
        "+ /ip/address 10.77.0.2/24: interface bridge",
    ]
    assert found[6:] == ["~ /user admin: disabled false -> yes", "~ /ip/service api: disabled false -> yes"]


def test_nothing_is_missing(switch: Switch) -> None:
    assert switch.tls
    pinned = switch.model_copy(update={"tls": switch.tls.model_copy(update={"sha256": PIN})})
    found = reading(
        (row("sparkrack"),),
        service=(
            {".id": "*7", "name": "api", "port": "8728", "disabled": "true"},
            {".id": "*8", "name": "api-ssl", "port": "8729", "certificate": "sparkrack", "disabled": "false"},
        ),
        group=({".id": "*4", "name": OWNER_GROUP, "policy": f"{OWNER_POLICY},!ssh,!telnet"},),
        user=(
            {".id": "*1", "name": "admin", "group": "full", "disabled": "true"},
            {".id": "*2", "name": "sparkrack", "group": OWNER_GROUP, "disabled": "false"},
        ),
        address=({".id": "*2", "address": "10.77.0.2/24", "interface": "bridge", "disabled": "false"},),
    )
    assert lines(pinned, found, replace(BOX, host="10.77.0.2")) == []
    assert lines(switch, found, replace(BOX, host="10.77.0.2")) == [f"~ rack.yaml tls.sha256 {PLACEHOLDER} -> {PIN}"]


def test_a_user_that_is_less_than_it_should_be(switch: Switch) -> None:
    user = {".id": "*2", "name": "sparkrack", "group": "read", "disabled": "true"}
    assert "~ /user sparkrack: group read -> sparkrack, disabled true -> no" in lines(switch, reading(user=(user,)))


def test_a_switch_without_admin(switch: Switch) -> None:
    assert not [line for line in lines(switch, reading(user=())) if "admin" in line]


def test_admin_is_left_on_when_it_gets_a_password(switch: Switch) -> None:
    assert not [line for line in lines(switch, reading(), replace(BOX, disable=False)) if "admin" in line]


@pytest.mark.parametrize(("day", "reported"), [("2026-11-19", ""), ("2026-11-21", ""), ("1970-01-02", "1970-01-02")])
def test_the_clock(switch: Switch, day: str, reported: str) -> None:
    assert missing(switch, reading(clock=({"date": day},)), BOX).clock == reported


def test_a_clock_that_cannot_be_read(switch: Switch) -> None:
    with pytest.raises(UnreadableError, match=r"/system/clock date: 'nov/20/2026' is not a date"):
        missing(switch, reading(clock=({"date": "nov/20/2026"},)), BOX)


# The address


def address(text: str, number: int = 1, disabled: str = "false", interface: str = "bridge") -> Row:
    return {".id": f"*{number}", "address": text, "interface": interface, "disabled": disabled}


FACTORY, RIGHT, THIRD = address("192.168.88.1/24"), address("10.77.0.2/16", 2), address("10.9.0.1/24", 3)


@pytest.mark.parametrize(
    ("rows", "host", "reported"),
    [
        ((FACTORY,), "192.168.88.1", ["+ /ip/address 10.77.0.2/24: interface bridge"]),
        (
            (address("192.168.88.1/24", interface="ether1"),),
            "192.168.88.1",
            ["+ /ip/address 10.77.0.2/24: interface ether1"],
        ),
        ((FACTORY, RIGHT), "192.168.88.1", ["- /ip/address 192.168.88.1/24"]),
        (
            (FACTORY, address("10.77.0.2/16", 2, "true")),
            "192.168.88.1",
            ["~ /ip/address 10.77.0.2/16: disabled true -> no"],
        ),
        ((FACTORY, RIGHT, THIRD), "10.77.0.2", ["- /ip/address 192.168.88.1/24"]),
        ((FACTORY, address("10.77.0.2/16", 2, "true")), "10.77.0.2", []),
        ((FACTORY,), "10.77.0.2", []),
        ((RIGHT, THIRD), "10.77.0.2", []),
    ],
)
def test_its_address(switch: Switch, rows: tuple[Row, ...], host: str, reported: list[str]) -> None:
    found = lines(switch, reading(address=rows), replace(BOX, host=host))
    assert [line for line in found if "/ip/address" in line] == reported


def test_the_old_address_stays_when_asked_to(switch: Switch) -> None:
    situation = replace(BOX, host="10.77.0.2", stay=True)
    assert missing(switch, reading(address=(FACTORY, RIGHT)), situation).old == ()


def test_the_address_that_was_named_goes_too(switch: Switch) -> None:
    gone = missing(
        switch, reading(address=(FACTORY, RIGHT, THIRD)), replace(BOX, host="10.77.0.2", given="10.9.0.1")
    ).old
    assert [change.row for change in gone] == ["192.168.88.1/24", "10.9.0.1/24"]


def test_a_right_address_that_is_the_factorys_stays(switch: Switch) -> None:
    same = switch.model_copy(update={"address": IPv4Address("192.168.88.1")})
    found = missing(same, reading(), BOX)
    assert (found.address, found.old) == ((), ())


def test_no_interface_to_give_an_address_to(switch: Switch) -> None:
    with pytest.raises(RefusedError, match=r"no interface has 10\.9\.9\.9, and there is no bridge bridge"):
        missing(switch, reading(bridge=()), replace(BOX, host="10.9.9.9"))


# What is sent


def test_every_word_is_in_the_command_tree() -> None:
    commands = tree()
    for sentence in (template("n", "c", "10.0.0.1"), sign("n")):
        path, _, verb = sentence[0].rpartition("/")
        assert {word[1:].partition("=")[0] for word in sentence[1:]} <= set(commands[path][verb])
    assert set(commands["/system/clock"]["set"]) >= {"date", "time"}
    for menu in (ADDRESS,):
        written = {name for name, reported in menu.fields.items() if not reported.read_only}
        assert written <= set(commands[menu.path]["add"])


def test_our_user_may_do_what_a_run_needs_and_give_what_the_reader_needs() -> None:
    ours = set(OWNER_POLICY.split(","))
    assert set(POLICY.split(",")) | set(READER_POLICY.split(",")) | {"api", "ftp"} <= ours
    assert ours.isdisjoint({"ssh", "telnet", "web", "winbox", "romon", "sniff"})


def test_what_is_read_holds_what_is_judged() -> None:
    assert set(READ) < set(GATE)

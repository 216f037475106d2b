"""What is changed by hand on a switch is found and named by a user that can only read, over REST."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switch.differences import DifferenceKind, SwitchDifference
from tests.emulator import verify_fixtures
from tests.emulator.verify_fixtures import Kept

ETHERNET, PORT = "/interface/ethernet/set", "/interface/bridge/port"


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with verify_fixtures.declared(tmp_path_factory.mktemp("kept"), lossless="roce") as made:
        assert made.drift() == ()
        yield made


@pytest.fixture
def kept(declared: Kept) -> Iterator[Kept]:
    """A switch as declared. What a test breaks is mended by a run, or by the test; the next test relies on it."""
    yield declared
    declared.declare()
    assert declared.drift() == ()


def found(kept: Kept) -> list[str]:
    drifts = kept.drift()
    assert all(one.sort is DifferenceKind.DIFFERS for one in drifts), drifts
    return [one.text for one in drifts]


CASES = {
    "a cage is split otherwise": (
        [f"{ETHERNET} .id=qsfp56-dd-1-1,qsfp56-dd-1-5 speed=200G-baseCR4"],
        ["cage qsfp56-dd-1 is 2x200G copper, wanted 4x100G copper"],
    ),
    "a cage negotiates": (
        [f"{ETHERNET} .id={','.join(f'qsfp56-dd-2-{n}' for n in range(1, 9))} auto-negotiation=yes"],
        ["cage qsfp56-dd-2 is auto-negotiated, wanted 4x100G copper"],
    ),
    "one leg has another speed": (
        [f"{ETHERNET} .id=qsfp56-dd-1-3 speed=50G-baseCR"],
        ["leg crs812/qsfp56-dd-1-3: speed is 50G-baseCR, wanted 100G-baseCR2"],
    ),
    "one leg negotiates": (
        [f"{ETHERNET} .id=qsfp56-dd-1-3 auto-negotiation=yes"],
        ["leg crs812/qsfp56-dd-1-3: it negotiates its speed, wanted forced"],
    ),
    "FEC is off": (
        [f"{ETHERNET} .id=qsfp56-dd-1-3 fec-mode=off"],
        ["leg crs812/qsfp56-dd-1-3: FEC is off, wanted fec91"],
    ),
    "FEC is off on two legs": (
        [f"{ETHERNET} .id=qsfp56-dd-1-3,qsfp56-dd-1-7 fec-mode=off"],
        ["legs crs812/qsfp56-dd-1-3, crs812/qsfp56-dd-1-7: FEC is off, wanted fec91"],
    ),
    "a companion is disabled": (
        [f"{ETHERNET} .id=qsfp56-dd-1-2 disabled=yes"],
        ["lane 2 of cage qsfp56-dd-1 is disabled: its leg would lose half its lanes; wanted enabled"],
    ),
    "a leg is disabled": (
        [f"{ETHERNET} .id=qsfp56-dd-1-5 disabled=yes"],
        ["leg crs812/qsfp56-dd-1-5: it is disabled, wanted enabled"],
    ),
    "l2mtu is lowered": (
        [f"{ETHERNET} .id=qsfp56-dd-2-4 mtu=1500 l2mtu=1584"],
        [
            "lane 4 of cage qsfp56-dd-2: l2mtu is 1584, wanted 9500",
            "lane 4 of cage qsfp56-dd-2: mtu is 1500, wanted 9000",
        ],
    ),
    "l2mtu of several lanes": (
        [f"{ETHERNET} .id=qsfp56-dd-2-1,qsfp56-dd-2-2,qsfp56-dd-2-3,qsfp56-dd-2-8 l2mtu=9400"],
        ["lanes 1-3, 8 of cage qsfp56-dd-2: l2mtu is 9400, wanted 9500"],
    ),
    "a leg sends pause frames": (
        [f"{ETHERNET} .id=qsfp56-dd-1-3 tx-flow-control=on"],
        ["leg crs812/qsfp56-dd-1-3: tx-flow-control is on, wanted off"],
    ),
    "a port is out of the bridge": (
        [f"{PORT}/remove .id=<{PORT} interface=qsfp56-dd-1-3>"],
        ["port qsfp56-dd-1-3 is not in bridge bridge (in none)"],
    ),
    "a port is not to be offloaded": (
        [f"{PORT}/set .id=<{PORT} interface=qsfp56-dd-1-3> hw=no"],
        ["port qsfp56-dd-1-3 goes through the CPU (hw=no), wanted hardware offload"],
    ),
    "a user is added": (
        ["/user/add name=mallory group=full password=canary-9Qx"],
        ["user mallory is not in rack.yaml"],
    ),
    "a service is on": (
        ["/ip/service/set .id=telnet disabled=no"],
        ["service telnet is on, wanted off"],
    ),
    "a service is open to all": (
        ["/ip/service/set .id=winbox available-from="],
        ["service winbox can be reached from anywhere, wanted from 127.0.0.0/8 only"],
    ),
    "PFC is off on one port": (
        ["/interface/ethernet/switch/qos/port/set .id=qsfp56-dd-2-3 pfc=disabled"],
        ["PFC of port qsfp56-dd-2-3 is disabled, wanted pfc-tc3"],
    ),
    "a port's rate is capped": (
        ["/interface/ethernet/switch/qos/port/set .id=qsfp56-dd-2-3 egress-rate-queue3=50G"],
        ["port qsfp56-dd-2-3: egress-rate-queue3 is 50000000000, wanted 100G"],
    ),
    "another name": (
        ["/system/identity/set name=other"],
        ["identity: name is other, wanted crs812"],
    ),
    "the reader may do more": (
        ["/user/group/set .id=sparkrack-reader policy=read,write,rest-api"],
        ["user group sparkrack-reader: policy is read,rest-api,write, wanted read,rest-api"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_by_hand_is_named(kept: Kept, case: str) -> None:
    sentences, lines = CASES[case]
    kept.by_hand(*sentences)
    assert found(kept) == lines


def test_a_port_of_another_bridge_and_that_bridge(kept: Kept) -> None:
    kept.by_hand("/interface/bridge/add name=br2", f"{PORT}/set .id=<{PORT} interface=qsfp56-dd-1-3> bridge=br2")
    assert kept.drift() == (
        SwitchDifference(DifferenceKind.DIFFERS, "port qsfp56-dd-1-3 is not in bridge bridge (in br2)"),
        SwitchDifference(
            DifferenceKind.FAULT,
            "bridge br2 is a second bridge, and the chip forwards for one only (its ports qsfp56-dd-1-3 have hw=yes); "
            "set hw=no on its ports, so that the CPU forwards for them, or make them ports of bridge",
        ),
    )
    kept.by_hand(f"{PORT}/set .id=<{PORT} interface=qsfp56-dd-1-3> bridge=bridge", "/interface/bridge/remove .id=br2")


def test_a_user_is_reported_and_left_when_nothing_is_purged(kept: Kept) -> None:
    kept.by_hand("/user/add name=mallory group=read password=canary-9Qx")
    assert kept.drift("purge") == (SwitchDifference(DifferenceKind.UNMANAGED, "user mallory is not in rack.yaml"),)


def test_without_a_reader_the_api_is_asked(kept: Kept) -> None:
    kept.by_hand(f"{ETHERNET} .id=qsfp56-dd-1-3 fec-mode=off")
    seen = len(kept.emulator.log())
    assert [one.text for one in kept.drift("reader", "purge") if one.sort is DifferenceKind.DIFFERS] == [
        "leg crs812/qsfp56-dd-1-3: FEC is off, wanted fec91"
    ]
    lines = [line for line in kept.emulator.log()[seen:] if "command" in line]
    assert {(line["user"], line["service"]) for line in lines} == {("sparkrack", "api-ssl")}
    assert {line["kind"] for line in lines} == {"session", "read"}


def test_over_rest_nothing_but_the_reader_logs_in(kept: Kept) -> None:
    seen = len(kept.emulator.log())
    kept.drift()
    lines = kept.emulator.log()[seen:]
    assert {(line["user"], line["service"], line["kind"]) for line in lines if "command" in line} == {
        ("sparkrack-reader", "www-ssl", "read")
    }
    asked = [line["command"] for line in lines if "command" in line]
    assert len(asked) == len(set(asked)), "a menu was read twice"

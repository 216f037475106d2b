"""Rules of a rack file that compare two figures: the last rack that is sound, and the first that is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.hardware import registry
from core.model.yaml_reader import parse, plain
from tests.unit.model.racks import KEPT, SWITCH, changed, faults, ring


def test_a_pool_that_is_one_bit_too_small_is_refused_with_the_size_to_write() -> None:
    assert faults(ring(4, [0] * 4, "10.100.0.0/21")) == []
    (fault,) = faults(ring(4, [0] * 4, "10.100.0.0/22"))
    assert fault.endswith("fabric.pool: 10.100.0.0/22 holds 4 /24, and 4 cables need 8; write a /21 or larger")
    (fault,) = faults(ring(5, [0] * 5, "10.100.0.0/24"))
    assert fault.endswith("fabric.pool: 10.100.0.0/24 holds 1 /24, and 5 cables need 10; write a /20 or larger")


@pytest.mark.parametrize(("host", "sound"), [(1, True), (254, True), (255, False)])
def test_the_last_host_of_a_subnet_is_taken_and_the_next_is_not(host: int, sound: bool) -> None:
    found = faults(changed(SWITCH, ("  spark1:\n", f"  spark1:\n    host: {host}\n")))
    assert [fault.partition(": ")[2] for fault in found] == (
        [] if sound else [f"nodes.spark1.host: 192.168.100.0/24 has no host {host}; write 1 to 254, or a larger subnet"]
    )


@pytest.mark.parametrize(
    ("mtu", "l2mtu", "said"),
    [
        (9000, 9000, []),
        (9001, 9001, []),
        (
            9001,
            9000,
            [
                (
                    "switches.crs812.mtu: 9001 is larger than the l2mtu 9000; write mtu <= l2mtu <= {most}, "
                    "like 9000 and 9500"
                )
            ],
        ),
        (9000, "{most}", []),
        (9000, "{more}", ["switches.crs812.l2mtu: {more} is too large; write at most {most}"]),
    ],
)
def test_what_a_switch_takes_is_to_the_byte(mtu: int, l2mtu: object, said: list[str]) -> None:
    (most,) = {model.max_l2mtu for model in registry.MODELS if "CRS812" in model.title}
    values = {"most": most, "more": most + 1}
    text = changed(
        KEPT.replace("  vlans: [1100, 1101]\n", ""),
        ("    bridge: fabric", f"    bridge: fabric\n    mtu: {mtu}\n    l2mtu: {str(l2mtu).format(**values)}"),
    )
    assert [fault.partition(": ")[2] for fault in faults(text)] == [words.format(**values) for words in said]


@pytest.mark.parametrize(("mtu", "sound"), [(9500, True), (9501, False)])
def test_the_fabric_has_at_most_the_l2mtu_of_its_switch(mtu: int, sound: bool) -> None:
    text = changed(SWITCH, ("fabric:\n  mtu: 9000\n", f"fabric:\n  mtu: {mtu}\n"))
    assert [fault.partition(": ")[2] for fault in faults(text)] == (
        []
        if sound
        else [
            (
                "fabric.mtu: 9501 is larger than the l2mtu 9500 of crs812; write at most 9500, "
                "or raise switches.crs812.l2mtu"
            )
        ]
    )


def nested(levels: int) -> str:
    return "rack: " + "[" * levels + "]" * levels


@pytest.mark.parametrize(("levels", "whole"), [(11, True), (12, False)])
def test_a_file_is_nested_twelve_deep_at_most(levels: int, whole: bool) -> None:
    assert parse(nested(levels)).whole == whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("True", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("-12", -12),
        ("9" * 18, int("9" * 18)),
        ("9" * 19, float("9" * 19)),
        ("0o17", 15),
        ("0xfF", 255),
        ("0x" + "f" * 16, 2**64 - 1),
        ("0x" + "f" * 17, "0x" + "f" * 17),
        ("0o" + "7" * 20, 8**20 - 1),
        ("0o" + "7" * 21, "0o" + "7" * 21),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        (".Inf", math.inf),
        ("inf", "inf"),
    ],
)
def test_a_word_without_quotes_is_what_yaml_1_2_takes_it_for(text: str, value: Any) -> None:
    found = plain(text)
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_a_number_to_yaml() -> None:
    assert math.isnan(plain(".nan"))

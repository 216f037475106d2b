"""What a node is asked, and what its answer is taken for."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from sparkrack.topology.observed import ObservedDevice, parse_observation
from switch.link_ends import node_end_script
from tests.unit.probe_output import probe_output
from tests.unit.topology.answers import RACKS, answers

PORTS = RACKS["vlans"].cabling.ports_of("spark1")
WORLD = answers(RACKS["vlans"])
GOOD = WORLD.output("spark1")
DEVICES = json.dumps(WORLD.devices("spark1"))


def observation_text(devices: str) -> str:
    """The output of a node that prints this list of devices."""
    return probe_output({"links": devices})


@pytest.mark.parametrize("rack", RACKS)
def test_the_script_is_one(rack: str) -> None:
    for node in RACKS[rack].nodes:
        text = node_end_script(RACKS[rack], RACKS[rack].cabling.ports_of(node))
        subprocess.run(["sh", "-n", "-c", text], check=True)
        assert text.endswith("\necho complete")


def test_an_answer() -> None:
    reported = parse_observation(GOOD, PORTS)
    assert reported.devices == {
        "enp1s0f1np1": ObservedDevice(9000, (), None),
        "fabric0": ObservedDevice(9000, ("192.168.100.1/24",), 1100),
        "enP2p1s0f1np1": ObservedDevice(9000, (), None),
        "fabric1": ObservedDevice(9000, ("192.168.101.1/24",), 1101),
    }
    assert [(half.interface, end.link) for half, end in reported.ends.items()] == [
        ("enp1s0f1np1", "yes"),
        ("enP2p1s0f1np1", "yes"),
    ]


@pytest.mark.parametrize(
    "devices",
    [
        "",
        "garbage",
        DEVICES.replace('"ifname": "fabric0"', '"name": "fabric0"'),
        DEVICES.replace('"addr_info": [', '"addr_info": [7, '),
        DEVICES.replace('"linkinfo": {', '"linkinfo": 7, "x": {'),
        f"7, {DEVICES}",
        f"x{DEVICES}",
        DEVICES[:-1],
    ],
)
def test_what_is_no_answer(devices: str) -> None:
    assert devices != DEVICES
    with pytest.raises(ValueError, match="gives no list"):
        parse_observation(observation_text(devices), PORTS)


@pytest.mark.parametrize("output", ["", "garbage", GOOD.partition("complete")[0], GOOD[:-3], "complete\n"])
def test_what_is_not_an_output_of_the_script(output: str) -> None:
    with pytest.raises(ValueError, match=r"^it (did not answer to the end|is garbled, or base64 .*)$"):
        parse_observation(output, PORTS)


def test_a_greeting_is_no_answer() -> None:
    assert parse_observation(f"Welcome to spark1!\nlinks e30K\n{GOOD}", PORTS) == parse_observation(GOOD, PORTS)


@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed")
def test_the_words_of_a_real_ip() -> None:
    real = subprocess.run(["ip", "-d", "-j", "address", "show"], capture_output=True, text=True, check=True).stdout
    loopback = parse_observation(observation_text(real), PORTS).devices["lo"]
    assert loopback.vlan is None
    assert loopback.mtu == next(one["mtu"] for one in json.loads(real) if one.get("ifname") == "lo")

"""What a node is asked, and what its answer is taken for."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from sparkrack.topology.said import Device, script, understood

from .answers import RACKS, answers

PORTS = RACKS["vlans"].cabling.ports_of("spark1")
GOOD = answers(RACKS["vlans"]).output("spark1")


@pytest.mark.parametrize("rack", RACKS)
def test_the_script_is_one(rack: str) -> None:
    for node in RACKS[rack].nodes:
        text = script(RACKS[rack], RACKS[rack].cabling.ports_of(node))
        subprocess.run(["sh", "-n", "-c", text], check=True)
        assert text.endswith("\necho sparkrack-devices\nip -d -j address show")


def test_an_answer() -> None:
    said = understood(GOOD, PORTS)
    assert said.devices == {
        "enp1s0f1np1": Device(9000, (), None),
        "fabric0": Device(9000, ("192.168.100.1/24",), 1100),
        "enP2p1s0f1np1": Device(9000, (), None),
        "fabric1": Device(9000, ("192.168.101.1/24",), 1101),
    }
    assert [(half.interface, end.link) for half, end in said.ends.items()] == [
        ("enp1s0f1np1", "yes"),
        ("enP2p1s0f1np1", "yes"),
    ]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "garbage",
        GOOD.partition("sparkrack-devices")[0],
        GOOD.partition('[{"ifname": "enp1s0f1np1", "mtu"')[0],
        GOOD.replace('"ifname": "fabric0"', '"name": "fabric0"'),
        GOOD.replace('"addr_info": [', '"addr_info": [7, '),
        GOOD.replace('"linkinfo": {', '"linkinfo": 7, "x": {'),
        GOOD.replace("sparkrack-devices\n[", "sparkrack-devices\n7, ["),
        "x" + GOOD,
    ],
)
def test_what_is_no_answer(output: str) -> None:
    assert output != GOOD
    with pytest.raises(ValueError, match="gives no list"):
        understood(output, PORTS)


@pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed")
def test_the_words_of_a_real_ip() -> None:
    real = subprocess.run(["ip", "-d", "-j", "address", "show"], capture_output=True, text=True, check=True).stdout
    loopback = understood(GOOD.partition("sparkrack-devices\n")[0] + "sparkrack-devices\n" + real, PORTS).devices["lo"]
    assert loopback.vlan is None
    assert loopback.mtu == next(one["mtu"] for one in json.loads(real) if one.get("ifname") == "lo")

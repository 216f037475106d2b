"""Prove a node's fabric: what `ip` shows, what netplan would do at boot, and frames of full size on every pair."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

import pytest

from roles.fabric.state import HEADERS, KEPT
from sparkrack.fleet import Address, Node, Rack, reachable
from sparkrack.proof.machines import Machine, Machines

ATTEMPTS = 3
"""A neighbour that was not spoken to for a while may cost the first echo."""


@pytest.fixture(scope="session")
def echoes(rack: Rack, machines: Machines, limited: frozenset[str]) -> Mapping[str, set[str]]:
    """For each node, the (interface, address) pairs that answered it; all are asked at the same time."""
    size = rack.fabric.mtu - HEADERS

    def ask(name: str, machine: Machine) -> set[str]:
        lines = [
            f"ping -q -n -c {ATTEMPTS} -i 0.3 -W 1 -M do -s {size} -I {here.half.interface} {there.interface.ip} "
            f">/dev/null 2>&1 && echo {here.half.interface} {there.interface.ip} &"
            for here, there in reachable(rack)
            if here.half.node == name
        ]
        return set(machine.run("sh -c " + shlex.quote("\n".join([*lines, "wait"]))).stdout.splitlines())

    return {name: ask(name, machines[name]) for name in limited}


def test_address_and_mtu_are_live(address: Address, machine: Machine, rack: Rack) -> None:
    """The interface is up and has its one IPv4 address and its MTU."""
    half = address.half
    shown = machine.run(f"ip -j -4 address show dev {half.interface}")
    assert shown.rc == 0, f"{half}: {shown.stderr.strip() or 'ip cannot show it'}"
    (link,) = json.loads(shown.stdout)
    addresses = [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"]]
    faults = []
    if addresses != [str(address.interface)]:
        faults.append(f"has {', '.join(addresses) or 'no address'}, wanted {address.interface}")
    if link["mtu"] != rack.fabric.mtu:
        faults.append(f"mtu {link['mtu']}, wanted {rack.fabric.mtu}")
    if "UP" not in link["flags"]:
        faults.append("is down")
    assert not faults, f"{half}: {'; '.join(faults)}"


def test_address_and_mtu_come_back_at_boot(address: Address, machine: Machine, rack: Rack) -> None:
    """netplan's own view of all its files, and no trial that a reboot would end."""
    half = address.half
    for key, wanted in (("addresses", f'- "{address.interface}"'), ("mtu", str(rack.fabric.mtu))):
        said = machine.run(f"netplan get ethernets.{half.interface}.{key}").stdout.strip().replace("'", '"')
        assert said == wanted, f"{half}: after a boot netplan gives {key} {said or 'nothing'}, wanted {wanted}"


def test_file_is_private_and_kept(node: Node, machine: Machine) -> None:
    """The file stands in /etc with mode 600, and nothing is on trial in /run."""
    said = machine.run(f"stat -c '%a %U %G' {KEPT}").stdout.strip()
    assert said == "600 root root", f"{node.name}: {KEPT} is {said or 'not there'}, wanted 600 root root"
    assert not machine.file("/run/netplan").exists or not machine.run("ls /run/netplan").stdout.split(), (
        f"{node.name}: a network change is still on trial in /run/netplan"
    )


def test_full_frames_reach(pair: tuple[Address, Address], echoes: Mapping[str, set[str]], rack: Rack) -> None:
    """An echo as large as the MTU allows, which no hop may cut, from one half to its peer."""
    here, there = pair
    answered = f"{here.half.interface} {there.interface.ip}" in echoes[here.half.node]
    ends = " and ".join(_leg(rack, address) for address in pair)
    assert answered, f"{here.half} does not reach {there.half} with {rack.fabric.mtu}-byte frames ({ends})"


def _leg(rack: Rack, address: Address) -> str:
    ports = {port.number: port for port in rack.cabling.ports_of(address.half.node)}
    leg = rack.cabling.leg_of(ports[address.half.port])
    if leg is None:
        return f"{address.half.node} port {address.half.port}"
    return f"{address.half.node} on leg {leg}, lanes {leg.lanes[0]}-{leg.lanes[-1]}"

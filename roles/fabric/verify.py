"""Prove a node's fabric: what `ip` shows, what netplan would do at boot, and frames of full size on every pair."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML
from testinfra.backend.base import CommandResult

from core.model import VLAN_DEVICES, Address, Node, Rack, addresses_of, reachable
from core.probes.protocol import UnknownError
from core.ssh.client import Machine, NodeConnections
from core.verify.measurements import Reachability
from core.verify.reporter import CheckReporter
from roles.fabric.desired import HEADERS, HOTPLUG, KEPT

ATTEMPTS = 3
"""A neighbour that was not spoken to for a while may cost the first echo."""
PING_ENDS = ("0", "1", "2")
"""Answered, not answered, not sent (no such device, no route): ping(8) of iputils. Any other end is not ping's own."""


Echoes = Mapping[str, Mapping[str, str]]
"""For each node, how `ping` ended ("0" for an answer) by device and address, as in "enp1s0f1np1 192.168.100.2"."""


@pytest.fixture(scope="session")
def echoes(rack: Rack, machines: NodeConnections, limited: frozenset[str]) -> Echoes:
    """The result of each echo; all echoes of a node are sent in parallel."""
    size = rack.fabric.mtu - HEADERS

    def ask(name: str, machine: Machine) -> Mapping[str, str]:
        lines = [
            f"{{ ping -q -n -c {ATTEMPTS} -i 0.3 -W 1 -M do -s {size} -I {here.device} {there.interface.ip} "
            f">/dev/null 2>&1; echo {here.device} {there.interface.ip} $?; }} &"
            for here, there in reachable(rack)
            if here.half.node == name
        ]
        reported = machine.run("sh -c " + shlex.quote("\n".join([*lines, "wait"]))).stdout
        return {about: code for about, _, code in (line.rpartition(" ") for line in reported.splitlines())}

    return {name: ask(name, machines[name]) for name in limited}


def test_address_and_mtu_are_live(address: Address, machine: Machine, rack: Rack) -> None:
    """The interface is up and has its one IPv4 address and its MTU."""
    shown = machine.run(f"ip -j address show dev {address.device}")  # with -4 it shows nothing of one without any
    assert shown.rc == 0, f"{_interface_name(address)}: {shown.stderr.strip() or 'ip cannot show it'}"
    (link,) = json.loads(shown.stdout)
    addresses = [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["family"] == "inet"]
    faults = []
    if addresses != [str(address.interface)]:
        faults.append(f"has {', '.join(addresses) or 'no address'}, wanted {address.interface}")
    if link["mtu"] != rack.fabric.mtu:
        faults.append(f"mtu {link['mtu']}, wanted {rack.fabric.mtu}")
    if "UP" not in link["flags"]:
        faults.append("is down")
    assert not faults, f"{_interface_name(address)}: {'; '.join(faults)}"


def test_vlans_are_live(node: Node, machine: Machine, rack: Rack) -> None:
    """Each half carries the VLAN that the rack has on it and no earlier one; tagged, it has no address itself."""
    shown = machine.run("ip -d -j link show")
    assert shown.rc == 0, f"{node.name}: {shown.stderr.strip() or 'ip cannot show its links'}"
    links = {link["ifname"]: link for link in json.loads(shown.stdout) if link}
    tagged = {address.device: address for address in addresses_of(rack, node.name) if address.vlan}
    faults = []
    for name in VLAN_DEVICES:
        vlan = _vlan_text(links.get(name, {}))
        if name in tagged:
            wanted = f"802.1Q {tagged[name].vlan} on {tagged[name].half.interface}"
            if vlan != wanted:
                faults.append(f"{name} is {vlan or 'no VLAN'}, wanted {wanted}")
        elif re.search(r" on en(p1|P2p1)s0f[01]np[01]$", vlan):
            faults.append(f"{name} is {vlan}, wanted none")
    for half in (address.half.interface for address in tagged.values()):
        mtu = links.get(half, {}).get("mtu")
        if mtu != rack.fabric.mtu:
            faults.append(f"{half} below its VLAN has mtu {mtu}, wanted {rack.fabric.mtu}")
        own = re.findall(r" inet (\S+)", machine.run(f"ip -o -4 address show dev {half}").stdout)
        if own:
            faults.append(f"{half} below its VLAN has {', '.join(own)}, wanted no address")
    assert not faults, f"{node.name}: {'; '.join(faults)}"


def _vlan_text(link: Mapping[str, Any]) -> str:
    """Return the VLAN of an interface, as in "802.1Q 1100 on enp1s0f1np1"; empty without one."""
    info = link.get("linkinfo", {})
    if info.get("info_kind") != "vlan":
        return ""
    return f"{info['info_data']['protocol']} {info['info_data']['id']} on {link.get('link', '?')}"


@pytest.fixture(scope="session")
def boot_networks(machines: NodeConnections, limited: frozenset[str]) -> Mapping[str, CommandResult]:
    """The answer of netplan about all its files, for each node: its program takes longer to start than to answer."""
    return {name: machines[name].run("netplan get all") for name in limited}


def test_address_and_mtu_come_back_at_boot(
    address: Address, boot_networks: Mapping[str, CommandResult], rack: Rack
) -> None:
    """netplan's own view of all its files, and no pending change that a reboot would revert."""
    shown = boot_networks[address.half.node]
    assert shown.rc == 0, (
        f"{_interface_name(address)}: {shown.stderr.strip() or 'netplan cannot show its configuration'}"
    )
    network = YAML(typ="safe", pure=True).load(shown.stdout)
    link, device = ("ethernets", address.half.interface), ("vlans", address.device)
    holder = device if address.vlan else link
    wanted: dict[tuple[str, ...], object] = {
        (*holder, "addresses"): [str(address.interface)],
        (*holder, "mtu"): rack.fabric.mtu,
    }
    if address.vlan:
        wanted |= {(*link, "addresses"): None, (*link, "mtu"): rack.fabric.mtu}
        wanted |= {(*device, "id"): address.vlan, (*device, "link"): address.half.interface}
    for path, value in wanted.items():
        reported = _value_at(network, ("network", *path))
        if reported is None and path[-1] == "mtu":
            reported = 1500  # the default of an interface without a setting
        assert reported == value, (
            f"{_interface_name(address)}: after a boot netplan gives {'.'.join(path)} {reported}, wanted {value}"
        )


def _value_at(tree: object, path: tuple[str, ...]) -> object:
    """Return the value at a path of nested mappings; None where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def test_file_is_private_and_kept(node: Node, machine: Machine, rack: Rack) -> None:
    """The file is in /etc with mode 600, and no pending one is in /run. With adopt another file may be in its place:
    its effect at boot is a separate check.
    """
    reported = machine.run(f"stat -c '%a %U %G' {KEPT}").stdout.strip()
    assert reported == "600 root root" or (rack.fabric.adopt and not reported), (
        f"{node.name}: {KEPT} is {reported or 'not there'}, wanted 600 root root"
    )
    assert not machine.file("/run/netplan").exists or not machine.run("ls /run/netplan").stdout.split(), (
        f"{node.name}: a network change is still on trial in /run/netplan"
    )


def test_hotplug_is_as_declared(node: Node, machine: Machine, rack: Rack) -> None:
    """DGX OS's file for it is there or not."""
    if rack.fabric.hotplug is None:
        pytest.skip("rack.yaml leaves hotplug alone")
    there = machine.file(HOTPLUG).exists
    assert there == rack.fabric.hotplug, f"{node.name}: {HOTPLUG} is {'there' if there else 'not there'}"


def test_no_half_without_a_cable_has_an_address(node: Node, machine: Machine, rack: Rack) -> None:
    """Nor a file of netplan for one: a cable that was moved takes its network along."""
    held = {address.half.interface for address in addresses_of(rack, node.name)}
    shown = machine.run("ip -o -4 address show")
    assert shown.rc == 0, f"{node.name}: {shown.stderr.strip() or 'ip cannot show its addresses'}"
    loose = [line.split() for line in shown.stdout.splitlines() if re.match(r"\d+: en(p1|P2p1)s0f[01]np[01]\b", line)]
    faults = [f"{words[1]} has {words[3]} and no cable" for words in loose if words[1] not in held]
    assert not faults, f"{node.name}: {'; '.join(faults)}"


def test_full_frames_reach(pair: tuple[Address, Address], echoes: Echoes, rack: Rack, report: CheckReporter) -> None:
    """An echo as large as the MTU allows, which no hop may cut, from one half to its peer."""
    here, there = pair
    code = echoes[here.half.node].get(f"{here.device} {there.interface.ip}", "nothing")
    if code not in PING_ENDS:
        raise UnknownError(f"{here.half}: ping towards {there.half} cannot be run, it ends with {code}")
    answered = code == "0"
    report.measured(Reachability.between(here, there, rack.fabric.mtu, answered))
    ends = " and ".join(_leg_text(rack, address) for address in pair)
    assert answered, f"{here.half} does not reach {there.half} with {rack.fabric.mtu}-byte frames ({ends})"


def _leg_text(rack: Rack, address: Address) -> str:
    ports = {port.number: port for port in rack.cabling.ports_of(address.half.node)}
    leg = rack.cabling.leg_of(ports[address.half.port])
    if leg is None:
        return f"{address.half.node} port {address.half.port}"
    return f"{address.half.node} on leg {leg}, lanes {leg.lanes[0]}-{leg.lanes[-1]}"


def _interface_name(address: Address) -> str:
    """Return the name of the interface with an address: a VLAN interface differs from its half."""
    return f"{address.half.node}/{address.device}"

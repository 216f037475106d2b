"""Verify logins: real logins from each node to each other one, and sshd's answer to a client without a key."""

from __future__ import annotations

import re

import pytest

from core.model import Node, Rack, reachable
from core.ssh.client import Machine
from core.verify.reporter import CheckReporter
from roles.access.desired import addresses
from roles.access.node_key import NAME
from roles.access.sshd_config import OFFER_NOTHING, SETTINGS


def goals(rack: Rack, node: Node, other: Node) -> list[str]:
    """By what a node must reach another one: its name, its management address, and each fabric address that shares a
    subnet with one of the node's own. Itself, it must reach by all its addresses."""
    if other.name == node.name:
        return list(dict.fromkeys([node.name, *map(str, addresses(rack, node))]))
    pairs = ((here.half.node, there) for here, there in reachable(rack))
    fabric = [str(there.interface.ip) for name, there in pairs if (name, there.half.node) == (node.name, other.name)]
    return list(dict.fromkeys([other.name, str(other.address), *fabric]))


def test_logs_in_to_every_node(
    node: Node, machine: Machine, rack: Rack, excluded: frozenset[str], report: CheckReporter
) -> None:
    """A login as the account of rack.yaml, by each name and address of the nodes, its own included, without a question.

    All nodes at once, but one after the other by the names of one: sshd lets only so many wait for their login.
    """
    login = "ssh -o BatchMode=yes -o ConnectTimeout=10"
    tries = [
        "; ".join(
            f"said=$({login} {goal} true 2>&1 </dev/null) || echo {goal}: $said" for goal in goals(rack, node, other)
        )
        for other in rack.nodes.values()
        if other.name not in excluded
    ]
    script = "\n".join([*(f"( {each} ) &" for each in tries), "wait"])
    done = machine.run("runuser -u %s -- sh -c %s", rack.access.user, script)
    assert done.rc == 0, f"{node.name}: logins could not be tried: {done.stderr.strip()}"
    report.judge(f"{node.name} cannot log in to {line}" for line in done.stdout.splitlines())


def test_host_keys_are_pinned_for_no_one_else(node: Node, machine: Machine) -> None:
    """ssh never asks about a node and accepts no new key for it; other hosts are not affected."""
    shown = {goal: machine.run(f"ssh -G {goal}").stdout for goal in (node.name, "github.com")}
    assert "stricthostkeychecking true" in shown[node.name].splitlines(), (
        f"{node.name}: ssh takes new keys of the nodes"
    )
    assert "sparkrack" not in shown["github.com"], f"{node.name}: ssh is changed for other hosts than the nodes"


def test_its_name_is_not_a_loopback(node: Node, machine: Machine) -> None:
    """The address that programs get for the name of their own machine is not loopback."""
    for name in ("$(hostname)", node.name):
        found = machine.run(f"getent ahosts {name}")
        addresses = {line.split()[0] for line in found.stdout.splitlines() if line.strip()}
        assert str(node.address) in addresses, f"{node.name}: {name} does not stand for {node.address}"
        inside = sorted(address for address in addresses if re.match(r"127\.|::1$", address))
        assert not inside, f"{node.name}: {name} stands for {', '.join(inside)}"


def test_every_node_is_known_by_its_name(node: Node, machine: Machine, rack: Rack) -> None:
    """The names of the rack stand for management addresses."""
    found = machine.run("; ".join(f"getent ahostsv4 {name}" for name in rack.nodes))
    reported = {line.split()[-1]: line.split()[0] for line in found.stdout.splitlines() if len(line.split()) == 3}
    for name, other in rack.nodes.items():
        assert reported.get(name) == str(other.address), f"{node.name}: {name} is {reported.get(name, 'unknown')}"


def test_sshd_takes_keys_only(node: Node, machine: Machine, rack: Rack) -> None:
    """The settings of its files, and the methods that the running sshd accepts from a client without a key."""
    if not rack.access.hardening:
        pytest.skip("rack.yaml leaves sshd alone")
    shown = machine.run("sshd -T").stdout.splitlines()
    for key, value in SETTINGS.items():
        assert f"{key.lower()} {value}" in shown, f"{node.name}: sshd has not {key} {value}"
    reported = machine.run(
        f"ssh {OFFER_NOTHING} -p {rack.access.port} {rack.access.user}@{node.address} true 2>&1; true"
    ).stdout
    taken = re.search(r"Permission denied \((.*)\)", reported)
    assert taken, f"{node.name}: sshd does not refuse who offers nothing: {reported.strip()}"
    assert taken[1] == "publickey", f"{node.name}: sshd takes {taken[1]}, wanted publickey"


def test_nothing_is_on_trial(node: Node, machine: Machine) -> None:
    """No change of sshd is pending, which a timer or a reboot would revert."""
    found = machine.run(
        "ls /etc/tmpfiles.d/sparkrack-access.conf /run/sparkrack/access.revert 2>/dev/null"
    ).stdout.split()
    assert not found, f"{node.name}: a change of sshd is still on trial: {', '.join(found)}"


def test_key_is_private_and_its_own(node: Node, machine: Machine, rack: Rack) -> None:
    """Only its owner reads the private key; no other node has it, as the keys that are accepted from them show."""
    folder = f"~{rack.access.user}/.ssh"
    shown = machine.run(f"stat -c '%a %U' {folder}/{NAME} {folder}").stdout.splitlines()
    wanted = [f"600 {rack.access.user}", f"700 {rack.access.user}"]
    assert shown == wanted, f"{node.name}: the key and its folder are {', '.join(shown) or 'not there'}"
    own = machine.run(f"ssh-keygen -y -P '' -f {folder}/{NAME}").stdout.split()[:2]
    assert len(own) == 2, f"{node.name}: {NAME} is not a key that can be used"
    lines = machine.run(f"cat {folder}/authorized_keys").stdout.splitlines()
    comment = f"sparkrack:{rack.rack}:{node.name}"
    same = [line.split()[-1] for line in lines if own[1] in line.split() and line.split()[-1] != comment]
    assert not same, f"{node.name}: its private key is that of {', '.join(same)} as well"
    let_in = [line.split()[-1] for line in lines if f" sparkrack:{rack.rack}:" in line]
    missing = [name for name in rack.nodes if f"sparkrack:{rack.rack}:{name}" not in let_in]
    assert not missing, f"{node.name}: does not accept {', '.join(missing)}"

"""The access role on several nodes: each is reported the keys of the others, and a copied key is made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from roles.access import authorized_keys, known_hosts, peer_exchange
from roles.access.desired import NodeAccount, Peer
from tests.unit.model.racks import RING, SWITCH, changed, loaded
from tests.unit.ops.fakenode import Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, node_of

KEYS = {"spark1": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne", "spark2": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITwo"}
HOME = "/home/ops/.ssh"


def node(name: str, key: str | None, **other: Any) -> Answers:
    """A node as it comes from its box, with or without a key pair that is right."""
    lines = ["user ops:x:1000:1000::/home/ops:/bin/bash", f"thing 700 1000:1000 {HOME} directory"]
    if key:
        lines += [f"thing 600 1000:1000 {HOME}/id_sparkrack regular file", f"derived {key}"]
        lines += [f"thing 644 1000:1000 {HOME}/id_sparkrack.pub regular file"]
    answers = {
        "access-keys": "\n".join([*lines, ""]),
        "access-host-keys": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHost{name}\n",
        "/proc/sys/kernel/hostname": f"{name}\n",
    }
    return Answers(node_of("access") | answers | other)


def rack(tmp_path: Path) -> Rack:
    return loaded(changed(SWITCH, ("~/.ssh/id_ed25519", f"{tmp_path}/id_ed25519")))


def bring_up(rack: Rack, mode: str = "yes", **nodes: Answers) -> Ended:
    hosts = {name: {"rack": rack, "node": rack.nodes[name], "answers": answers} for name, answers in nodes.items()}
    return run(hosts, DEPLOYS["access"], mode)


def written(answers: Answers, path: str) -> str:
    """What a file of the node is made to hold; empty when it is not written."""
    found = [stdin for text, stdin in answers.sent if f'mv -fT "$new" {path};' in text]
    assert len(found) < 2
    return found[0] if found else ""


def makes_a_key(answers: Answers) -> bool:
    return any("ssh-keygen -q" in text for text, _ in answers.sent)


def test_each_lets_the_other_and_itself_in(tmp_path: Path) -> None:
    nodes = {name: node(name, key) for name, key in KEYS.items()}
    assert bring_up(rack(tmp_path), "yes", **nodes).failed == []
    options = "no-agent-forwarding,no-X11-forwarding"
    for name in KEYS:  # itself included: programs log in to every address of the rack
        assert written(nodes[name], f"{HOME}/authorized_keys") == (
            f'from="10.77.0.11,192.168.100.1,192.168.101.1",{options} {KEYS["spark1"]} sparkrack:two:spark1\n'
            f'from="10.77.0.12,192.168.100.2,192.168.101.2",{options} {KEYS["spark2"]} sparkrack:two:spark2\n'
        )
    pinned = written(nodes["spark2"], known_hosts.HOSTS)
    assert "spark1,10.77.0.11,192.168.100.1,192.168.101.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostspark1\n" in pinned
    assert "spark2,10.77.0.12,192.168.100.2,192.168.101.2 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostspark2\n" in pinned


def test_a_private_key_that_was_copied_is_made_again_on_the_later_node(tmp_path: Path) -> None:
    nodes = {name: node(name, KEYS["spark1"]) for name in KEYS}
    ended = bring_up(rack(tmp_path), "yes", **nodes)
    assert ended.failed == []
    assert [name for name, answers in nodes.items() if makes_a_key(answers)] == ["spark2"]


@pytest.mark.parametrize("mode", ["dry", "asked"])
def test_a_key_that_is_yet_to_be_made_counts_as_a_change(tmp_path: Path, mode: str) -> None:
    right = Answers(node_of("access"))
    ended = bring_up(rack(tmp_path), mode, spark1=right, spark2=node("spark2", None))
    assert ended.failed == []
    assert ended.changing == 3  # key and exchange on spark2; on spark1 the key of spark2, which is not there yet


def test_a_node_that_cannot_be_read_keeps_its_lines_on_the_others(tmp_path: Path) -> None:
    right = Answers(node_of("access"))
    ended = bring_up(rack(tmp_path), spark1=right, spark2=node("spark2", None, **{"access-sshd": {"exit": 9}}))
    assert ended.failed == ["spark2"]
    assert right.sent == []
    assert "access: access-sshd: reading it ends with exit 9; nothing was changed" in ended.log


def test_the_same_user_with_other_numbers_is_reported(tmp_path: Path) -> None:
    other = node("spark2", KEYS["spark2"])
    keys = other.node["access-keys"].replace("ops:x:1000:1000", "ops:x:1001:1000").replace(" 1000:1000", " 1001:1000")
    other.node = {**other.node, "access-keys": keys}
    ended = bring_up(rack(tmp_path), spark1=Answers(node_of("access")), spark2=other)
    assert ended.failed == []
    assert "ops is 1001:1000 on spark2 and 1000:1000 on spark1" in ended.log


@pytest.mark.parametrize("there", [True, False])
def test_the_operators_own_key(tmp_path: Path, there: bool) -> None:
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator me@desk\n")
    before = 'from="10.0.0.1" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator other comment\n' if there else "# none\n"
    one = loaded(changed(SWITCH, ("~/.ssh/id_ed25519", f"{tmp_path}/id_ed25519")))
    after = authorized_keys.authorized(one, before.encode(), {}, peer_exchange.operator_key(one))
    added = b"" if there else b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator me@desk\n"
    assert after == before.encode() + added


@pytest.mark.parametrize("text", ["", "garbage $(reboot)\n", 'command="x" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIX\n'])
def test_an_operators_key_that_is_none_is_left_out(tmp_path: Path, text: str) -> None:
    assert peer_exchange.operator_key(rack(tmp_path)) is None
    (tmp_path / "id_ed25519.pub").write_text(text)
    assert peer_exchange.operator_key(rack(tmp_path)) is None


def test_host_keys_of_a_node_that_is_not_asked_are_kept_under_its_present_addresses() -> None:
    ring = loaded(RING)
    account = NodeAccount("ops", 1000, 1000, "/home/ops")
    peers = {"spark1": Peer(account, None, ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHost1",))}
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHost3"
    before = f"spark3,10.0.0.9 {key}\nspark4 {key}\n".encode()
    lines = known_hosts.known_hosts(ring, before, peers).decode().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["spark1", "spark3"]
    assert lines[1].endswith(f" {key}")
    assert "10.0.0.9" not in lines[1]

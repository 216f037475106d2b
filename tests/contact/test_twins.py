"""Nodes that came from one image: each ends with host keys and a machine-id of its own, whenever it is interrupted."""

from __future__ import annotations

import pytest

from core.ssh.host_keys import offered, pinned
from tests.contact.conftest import Rack
from tests.contact.nodes import PATIENCE, Operator, Seed, host_keys

ID = "0123456789abcdef0123456789abcdef"
LEAST, MOST = 16, 22
"""How many writes two clones take, at least and at most."""
WORST = 16
"""After this one the second node has its own host keys, and its sshd still shows the old ones."""


def twins(rack: Rack) -> Operator:
    keys = host_keys("image")
    return rack(Seed(keys), Seed({**keys, "var/lib/dbus/machine-id": f"{ID}\n"}, name="spark-3c4d"))


def apart(operator: Operator) -> None:
    """Both are themselves, known by what they show and by nothing else, and let the operator in."""
    first, second = operator.nodes.values()
    assert not set(first.keys.values()) & set(second.keys.values())
    for name, node in operator.nodes.items():
        shown = set(offered(node.address, node.port, PATIENCE))
        assert shown == set(node.keys.values()) == set(pinned(operator.known_hosts, node.address, node.port))
        assert operator.by_key(name, "hostname; sudo -n id -u") == f"{name}\n0\n"
        assert node.ask("ls -A /etc/ssh").split() == sorted(
            ["moduli", "ssh_config", "ssh_config.d", "sshd_config", "sshd_config.d"]
            + [f"ssh_host_{kind}_key{end}" for kind in ("ecdsa", "ed25519", "rsa") for end in ("", ".pub")]
        )
        assert node.ask("stat -c %a /etc/ssh/ssh_host_*_key /etc/machine-id").split() == [
            "600",
            "600",
            "600",
            "444",
        ] or (node is first)
    assert first.ask("cat /etc/machine-id") != second.ask("cat /etc/machine-id")


def test_the_second_of_two_clones_gets_its_own_keys_and_machine_id(rack: Rack) -> None:
    operator = twins(rack)
    first, second = operator.nodes.values()
    before = first.keys
    done = operator.run()
    assert done.code == 0, done
    assert first.keys == before, "the first of rank keeps its own"
    assert "to be restarted, for their new machine-id: spark2" in done.output
    assert first.ask("cat /etc/machine-id").strip() == ID
    assert (
        second.ask("cat /run/reboot-required.pkgs; readlink /var/lib/dbus/machine-id")
        == "machine-id\n/etc/machine-id\n"
    )
    assert second.ask("cat /run/journal-of") == second.ask("cat /etc/machine-id"), "journald writes where none reads"
    apart(operator)
    states = [node.state() for node in operator.nodes.values()]
    again = operator.run(secret=False)
    assert again.code == 0, again
    assert [node.state() for node in operator.nodes.values()] == states


def test_a_node_that_is_not_named_keeps_its_own_keys(rack: Rack) -> None:
    operator = twins(rack)
    assert operator.run("spark2").code == 0
    first, second = operator.nodes.values()
    assert not set(first.keys.values()) & set(second.keys.values())
    before = second.state()
    assert operator.run("spark1").code == 0
    assert second.state() == before


@pytest.mark.parametrize(
    "writes",
    [pytest.param(number, marks=() if number == WORST else pytest.mark.soak) for number in range(1, MOST)],
)
def test_a_run_that_is_killed_after_any_write_is_finished_by_the_next(rack: Rack, writes: int) -> None:
    operator = twins(rack)
    first = operator.run(kill=writes)
    if not first.killed:
        assert (first.code, writes > LEAST) == (0, True), first
        pytest.skip(f"there are no {writes} writes")
    for node in operator.nodes.values():
        pins = pinned(operator.known_hosts, node.address, node.port)
        assert not pins or set(pins) & set(offered(node.address, node.port, PATIENCE)), "what it shows is always known"
    done = operator.run()
    assert done.code == 0, done
    apart(operator)

"""The fabric role on two nodes: one after the other, the second proven against the first, none after a failure."""

from __future__ import annotations

import pytest

from tests.unit.ops.fakenode import Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, node_of, rack_of

FACTORY = (
    '[{"ifname": "enp1s0f1np1", "flags": [], "mtu": 1500, "addr_info": []},'
    ' {"ifname": "enP2p1s0f1np1", "flags": [], "mtu": 1500, "addr_info": []}]'
)


def bring_up(first: Answers, second: Answers, mode: str = "yes") -> Ended:
    rack = rack_of({})
    hosts = {
        name: {"rack": rack, "node": rack.nodes[name], "answers": answers}
        for name, answers in {"spark1": first, "spark2": second}.items()
    }
    return run(hosts, DEPLOYS["fabric"], mode)


def factory(**knobs: str) -> Answers:
    return Answers(node_of("fabric") | {"fabric-links": FACTORY}, **knobs)  # type: ignore[arg-type]


def proof(answers: Answers) -> str:
    (text,) = [text for text, _ in answers.sent if "faults() {" in text]
    return text


def test_the_first_is_proven_alone_the_second_against_it() -> None:
    nodes = [factory(), factory()]
    assert bring_up(nodes[0], nodes[1]).failed == []
    peer = 1 if nodes[0].asked_at < nodes[1].asked_at else 2
    first, second = sorted(nodes, key=lambda answers: answers.asked_at)
    assert "ping" not in proof(first)
    assert f"-I enp1s0f1np1 192.168.100.{peer}" in proof(second)
    assert f"-I enP2p1s0f1np1 192.168.101.{peer}" in proof(second)
    assert "-M do -s 8972" in proof(second)


def test_one_that_was_found_right_is_a_peer() -> None:
    """In whichever order the two have their turn: every node was looked at for the operation before."""
    right, other = Answers(node_of("fabric")), factory()
    assert bring_up(right, other).failed == []
    assert right.sent == []
    assert "-I enp1s0f1np1 192.168.100.1" in proof(other)


@pytest.mark.parametrize(
    ("fault", "commands"), [("netplan generate", 1), ("systemd-run", 2), ("networkctl", 4), ("faults() {", 5)]
)
def test_after_a_failure_no_other_is_touched(fault: str, commands: int) -> None:
    nodes = [factory(fails=fault), factory(fails=fault)]
    ended = bring_up(nodes[0], nodes[1])
    first, second = sorted(nodes, key=lambda answers: answers.asked_at)
    assert ended.failed == ["spark1", "spark2"]
    assert len(first.sent) == commands
    assert second.sent == []
    name = "spark1" if first is nodes[0] else "spark2"
    assert f"not touched, since {name} failed and nodes change one at a time" in ended.log


def test_what_never_was_armed_is_not_taken_back() -> None:
    nodes = [factory(fails="netplan generate"), factory(fails="netplan generate")]
    bring_up(nodes[0], nodes[1])
    assert not [text for answers in nodes for text, _ in answers.sent if "systemctl stop" in text]


def test_nothing_is_sent_in_a_dry_run() -> None:
    first, second = factory(), factory()
    assert bring_up(first, second, "dry").changing == 2
    assert first.sent == second.sent == []


def test_the_probe_costs_one_command_a_stage() -> None:
    for mode, probes in (("dry", 1), ("yes", 1), ("asked", 2)):
        right = Answers(node_of("fabric"))
        bring_up(right, Answers(node_of("fabric") | {"fabric-links": FACTORY}), mode)
        assert right.probes == probes, mode

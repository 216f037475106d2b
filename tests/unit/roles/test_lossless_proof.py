"""The proof of the lossless role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.model import Rack
from roles.lossless import boot_unit, desired, verify
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import run, stand_in
from tests.unit.roles.card import NAMES, card, driver_answers, traffic_class
from tests.unit.roles.checked_node import Machine


def rack(policy: str) -> Rack:
    return loaded(changed(SWITCH, ("    l2mtu: 9500\n", f"    l2mtu: 9500\n    lossless: {policy}\n")))


def node(root: Path, policy: desired.Policy) -> Path:
    """A node with that policy, and a systemd that says its units are wanted and active."""
    card(root)
    script = boot_unit.script("two", dict.fromkeys(NAMES, policy))
    for name in NAMES:
        assert run(f"set -- {name}\n{script.decode()}", root).returncode == 0
    driver_answers(root)
    for path, content in ((desired.SCRIPT, script), (desired.UNIT, boot_unit.unit("two"))):
        Path(f"{root}{path}").parent.mkdir(parents=True, exist_ok=True)
        Path(f"{root}{path}").write_bytes(content)
    stand_in(
        root,
        "systemctl",
        'case "$2" in *Wants) n=${4##*-}; echo "a.service sparkrack-lossless@${n%.device}.service";; '
        "*) echo active;; esac",
    )
    return root


def failures(root: Path, policy: str) -> list[str]:
    """What the checks say that this policy has."""
    two = rack(policy)
    machine = Machine(root)
    (leg,) = [pair for pair in two.cabling.legs("crs812") if pair[1].node == "spark1"]
    reported = []

    def check(test: Callable[..., None], *arguments: object) -> None:
        try:
            test(*arguments)
        except AssertionError as error:
            reported.append(str(error).splitlines()[0])

    for half in verify.HALF:
        if policy in ("pause", "roce"):
            check(verify.test_pause_is_as_on_the_switch, leg, policy, machine, half)
            check(verify.test_one_priority_is_lossless_or_none, leg, policy, machine, half)
            check(verify.test_it_comes_back_with_the_interface, leg, policy, machine, half)
        if policy == "roce":
            check(verify.test_marks_go_where_the_switch_sends_them, leg, machine, half)
            check(verify.test_congestion_is_reported_and_heard, leg, machine, half)
            check(verify.test_rdma_is_marked, leg, machine, half)
    check(verify.test_nothing_is_left_where_loss_is_left_alone, two, two.nodes["spark1"], machine)
    return reported


@pytest.mark.parametrize("policy", ["pause", "roce"])
def test_a_node_that_is_right(tmp_path: Path, policy: desired.Policy) -> None:
    assert failures(node(tmp_path, policy), policy) == []


def test_a_node_that_was_never_touched(tmp_path: Path) -> None:
    assert failures(card(tmp_path), "none") == []


def test_a_node_of_a_switch_that_is_left_as_it_is_keeps_what_it_has(tmp_path: Path) -> None:
    assert failures(node(tmp_path, "roce"), "leave") == []


@pytest.mark.parametrize("policy", ["none", "ecn"])
def test_what_is_left_of_a_policy(tmp_path: Path, policy: str) -> None:
    reported = failures(node(tmp_path, "pause"), policy)
    assert reported == [f"spark1: {desired.SCRIPT}, {desired.UNIT} is left, though no switch of the node has a policy"]


BROKEN = {
    "ethtool -A enP2p1s0f1np1 rx on": "enP2p1s0f1np1: pause is {'RX': 'on', 'TX': 'off'}, its switch has roce",
    "dcb pfc set dev enp1s0f1np1 prio-pfc 4:on": "spark1/enp1s0f1np1: lossless are priorities [3, 4], wanted [3]",
    "dcb app del dev enp1s0f1np1 dscp-prio 26:3": "spark1/enp1s0f1np1: DSCP 26 has priority [], wanted 3",
    "dcb app replace dev enp1s0f1np1 dscp-prio 48:3": "spark1/enp1s0f1np1: DSCP 48 has priority ['3'], wanted 6",
    f"echo 0 > /sys/class/net/enp1s0f1np1/{desired.REACT}": "enp1s0f1np1: roce_rp/enable/3 is 0, wanted 1",
    f"echo 46 > /sys/class/net/enp1s0f1np1/{desired.CNP}": "enp1s0f1np1: roce_np/cnp_dscp is 46, wanted 48",
    "echo case > /usr/local/lib/sparkrack/lossless": "spark1: /usr/local/lib/sparkrack/lossless: ",
}


@pytest.mark.parametrize("script", BROKEN)
def test_what_is_broken_is_reported(tmp_path: Path, script: str) -> None:
    root = node(tmp_path, "roce")
    assert run(script, root).returncode == 0
    reported = failures(root, "roce")
    assert any(BROKEN[script] in line for line in reported), reported


def test_rdma_that_its_programs_mark(tmp_path: Path) -> None:
    root = node(tmp_path, "roce")
    traffic_class(root).write_text("")
    assert failures(root, "roce") == ["spark1/enp1s0f1np1: RDMA is marked by its programs, wanted 106"]


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ("exit 0", "nothing brings pause back when the interface appears"),
        (
            'case "$2" in *Wants) echo sparkrack-lossless@enp1s0f1np1.service;; *) echo failed;; esac',
            "service is failed",
        ),
    ],
)
def test_a_unit_that_does_not_bring_it_back(tmp_path: Path, answers: str, line: str) -> None:
    root = node(tmp_path, "pause")
    stand_in(root, "systemctl", answers)
    assert any(line in reported for reported in failures(root, "pause"))


def test_a_policy_the_node_does_not_have(tmp_path: Path) -> None:
    assert len(failures(node(tmp_path, "pause"), "roce")) == 2 * 4

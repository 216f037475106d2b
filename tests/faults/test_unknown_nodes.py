"""Nodes that cannot be read, in real pyinfra runs of every kind: exit 1, the reason reported, nothing sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.pyinfra_workdir import MODES, run, sent
from tests.tiers import crossed
from tests.unit.roles.cases import OPERATIONS, ROLES, node_in, node_of, read, role_file


def different(role: str, **changes: Any) -> dict[str, Any]:
    """A node with something to change."""
    return node_in(role, read(OPERATIONS / role / f"{role_file(role)['differs']}.yaml")) | changes


def bad(role: str) -> dict[str, Any]:
    """A rack full of nodes that each cannot be read in a way of its own, and the message about each."""
    key = role_file(role)["key"]
    return {
        "silent": ({"node": different(role, **{key: {"silent": True}})}, f"{key}: the node did not answer"),
        "garbled": ({"node": different(role, **{key: {"garbled": "%%"}})}, f"{key}: the node's answer is garbled"),
        "failing": ({"node": different(role, **{key: {"exit": 3}})}, f"{key}: reading it ends with exit 3"),
        "cut": ({"node": different(role), "cut": 1}, "the node's answer ends too early"),
        "empty": ({"node": different(role), "cut": 0}, "the node's answer ends too early"),
        "denied": ({"refused": "Permission denied"}, "state of the node: Permission denied"),
        "sudo": ({"refused": "sudo: a password is required"}, "state of the node: sudo: a password is required"),
        "nosudo": ({"refused": "sh: 1: sudo: not found"}, "state of the node: sh: 1: sudo: not found"),
        "lost": ({"lost": "timed out"}, "state of the node: no whole answer in time (timed out)"),
    }


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, tuple(MODES)))
def test_none_is_changed(tmp_path: Path, role: str, mode: str) -> None:
    nodes = bad(role)
    ended = run(tmp_path, role, {name: reported for name, (reported, _) in nodes.items()}, mode)
    assert ended.code == 1, ended.text
    assert sent(ended) == []
    assert "Traceback" not in ended.text, ended.text
    for name, (_, reason) in nodes.items():
        lines = [line for line in ended.text.splitlines() if line.strip().startswith(f"[@fake/{name}]")]
        assert any(reason in line for line in lines), (name, reason, lines)


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, tuple(MODES)))
def test_one_alone_fails_the_run(tmp_path: Path, role: str, mode: str) -> None:
    ended = run(tmp_path, role, {"alone": {"refused": "sudo: a password is required"}}, mode)
    assert ended.code == 1, ended.text
    assert sent(ended) == []
    assert "Traceback" not in ended.text, ended.text


# A model is brought by a program whose answers no text stands in for, and a unit needs a lock file:
# tests/unit/roles/test_models_runs.py and test_serving_runs.py run them.
RUN_ELSEWHERE = ("models", "serving")


@pytest.mark.parametrize("role", [one for one in ROLES if role_file(one)["changes"] and one not in RUN_ELSEWHERE])
def test_one_that_can_be_read_is_changed(tmp_path: Path, role: str) -> None:
    """Else the tests above would prove nothing."""
    ended = run(tmp_path, role, {"good": {"node": different(role)}}, "yes")
    assert ended.code == 0, ended.text
    assert sent(ended)


@pytest.mark.parametrize("role", ROLES)
def test_one_that_is_right_is_left_alone(tmp_path: Path, role: str) -> None:
    about = role_file(role)
    edits = about.get("right_rack", about["rack"])
    ended = run(tmp_path, role, {"right": {"node": node_of(role)}}, "yes", edits=edits)
    assert ended.code == 0, ended.text
    assert sent(ended) == []


def test_a_dry_run_shows_what_would_change(tmp_path: Path) -> None:
    ended = run(tmp_path, "memory", {"good": {"node": different("memory")}}, "dry", "--diff")
    assert ended.code == 0, ended.text
    assert sent(ended) == []
    for text in (
        "Will modify /etc/fstab",
        "+#sparkrack: swap off# /swap.img none swap sw 0 0",
        "mask swap.img.swap",
        "swapoff /swap.img",
        "Turn swap off, now and after a reboot",
    ):
        assert text in ended.text


def test_a_change_that_is_not_proven_is_taken_back(tmp_path: Path) -> None:
    node = {"node": different("fabric"), "commands": {"faults() {": {"success": False, "stdout": "it is broken"}}}
    ended = run(tmp_path, "fabric", {"bad": node}, "yes")
    assert ended.code == 1, ended.text
    assert "not proven: it is broken" in ended.text
    assert "the old network is back" in ended.text
    assert not [line for line in sent(ended) if "mv -fT" in line], "it was kept"
    assert "Traceback" not in ended.text, ended.text

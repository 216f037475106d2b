"""Whatever a role cannot know stops its host: no command is sent, in no kind of run, and the reason is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from paramiko import SSHException

from core.ops import host_facts
from tests.tiers import crossed
from tests.unit.ops.fakenode import MODES, Answers, run
from tests.unit.roles.cases import BYTES, DEPLOYS, OPERATIONS, ROLES, THERE, node_in, node_of, rack_of, read, role_file

FAULTS: dict[str, Any] = {
    "silent": {"silent": True},
    "garbled": {"garbled": "%%%"},
    "fails": {"exit": 3},
    "not text": b"\xff\xfe",
}


def keys() -> Iterator[tuple[str, str]]:
    for role in ROLES:
        for key in (*host_facts._registered[role].files, *host_facts._registered[role].commands):
            yield role, key


def broken(role: str, **changes: Any) -> Answers:
    case = read(OPERATIONS / role / f"{role_file(role)['differs']}.yaml")
    return Answers(node_in(role, case) | changes)


def ended(role: str, answers: Answers, mode: str) -> str:
    """Run it; it must stop before it sends anything. What was said."""
    rack = rack_of(role_file(role))
    result = run({"spark1": {"rack": rack, "node": rack.nodes["spark1"], "answers": answers}}, DEPLOYS[role], mode)
    assert result.failed == ["spark1"], result.reported
    assert answers.sent == [], answers.sent
    assert "Traceback" not in result.log
    return result.log


UNKNOWN = [
    (role, key, fault)
    for role, key in keys()
    for fault in FAULTS
    if fault != "not text" or key not in BYTES | THERE  # these may hold any bytes
]


@pytest.mark.parametrize(("asked", "mode"), crossed(UNKNOWN, MODES, "-".join))
def test_an_unknown_answer(asked: tuple[str, str, str], mode: str) -> None:
    role, key, fault = asked
    answers = broken(role, **{key: FAULTS[fault]})
    about = role_file(role)
    if key in about["late"]:
        answers = Answers(node_of(role) | dict(about["late_node"]) | {key: FAULTS[fault]})
    reported = ended(role, answers, mode)
    assert key in reported


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, MODES))
@pytest.mark.parametrize("lines", [0, 1, 5, -1])
def test_an_answer_that_ends_too_early(role: str, lines: int, mode: str) -> None:
    answers = broken(role)
    answers.cut = lines
    assert "ends too early" in ended(role, answers, mode)


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, MODES))
@pytest.mark.parametrize(
    "complaint", ["sudo: a password is required", "sh: 1: sudo: not found", "Permission denied", ""]
)
def test_a_probe_that_fails(role: str, complaint: str, mode: str) -> None:
    answers = broken(role)
    answers.probe_fails = complaint
    assert f"state of the node: {complaint}" in ended(role, answers, mode)


@pytest.mark.parametrize(("role", "mode"), crossed(ROLES, MODES))
@pytest.mark.parametrize(
    "error",
    [TimeoutError("timed out"), OSError("Socket is closed"), EOFError("gone"), SSHException("No session")],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_is_lost(role: str, error: Exception, mode: str) -> None:
    answers = broken(role)
    answers.probe_raises = error
    assert str(error) in ended(role, answers, mode)


@pytest.mark.parametrize("mode", MODES)
def test_other_hosts_go_on(mode: str) -> None:
    rack = rack_of({})
    bad, good = broken("memory", **{"/etc/fstab": {"garbled": "%"}}), broken("memory")
    hosts = {
        name: {"rack": rack, "node": rack.nodes[name], "answers": answers}
        for name, answers in {"spark1": bad, "spark2": good}.items()
    }
    result = run(hosts, DEPLOYS["memory"], mode)
    assert result.failed == ["spark1"], result.reported
    assert bad.sent == []
    assert len(good.sent) == (0 if mode == "dry" else 3)

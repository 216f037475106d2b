"""The operation on several nodes at once: who is compared, who is named, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from core.ops import host_facts
from tests.unit.ops.fakenode import MODES, Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, node_of, rack_of

TWIN = "host key: ssh-ed25519 is the same as on"


def second(*edits: tuple[str, str]) -> dict[str, Any]:
    """The answers of spark2, a Lenovo, with nothing against changing it."""
    node = node_of("preflight")
    node["/etc/machine-id"] = "f" * 32 + "\n"
    for old, new in [
        ("ASUSTeK COMPUTER INC.", "LENOVO"),
        ("GX10DGX.0105.2026", "5.36_1.2"),
        ("AAAIone", "AAAItwo"),
        *edits,
    ]:
        assert old in node["preflight-machine"] + node["preflight-now"], old
        for key in ("preflight-machine", "preflight-now"):
            node[key] = node[key].replace(old, new)
    return node


def look(mode: str, *nodes: Answers) -> Ended:
    rack = rack_of({})
    names = ("spark1", "spark2")
    hosts = {
        name: {"rack": rack, "node": rack.nodes[name], "answers": answers}
        for name, answers in zip(names, nodes, strict=True)
    }
    return run(hosts, DEPLOYS["preflight"], mode)


@pytest.mark.parametrize("mode", MODES)
def test_two_that_are_right(mode: str) -> None:
    nodes = [Answers(node_of("preflight")), Answers(second())]
    ended = look(mode, *nodes)
    assert ended.failed == [], ended.reported
    assert ended.changing == 0
    assert "preflight: " not in ended.log, "nothing to tell"
    for answers in nodes:
        assert answers.sent == []
        assert answers.probes == (2 if mode == "asked" else 1), "one probe a stage, however many look"


@pytest.mark.parametrize("mode", MODES)
def test_twins_are_refused_both(mode: str) -> None:
    ended = look(mode, Answers(node_of("preflight")), Answers(second(("AAAItwo", "AAAIone"))))
    assert ended.failed == ["spark1", "spark2"]
    assert f"[@fake/spark1] preflight: {TWIN} spark2, so each can pass for the other" in ended.log
    assert f"[@fake/spark2] preflight: {TWIN} spark1, so each can pass for the other" in ended.log


def test_a_difference_is_reported_and_fails_no_one() -> None:
    ended = look("yes", Answers(node_of("preflight")), Answers(second(("6.17.0-1021", "6.17.0-1029"))))
    assert ended.failed == []
    lines = [line for line in ended.reported if "nodes differ in kernel" in line]
    assert lines == [
        "[@fake/spark1] preflight: nodes differ in kernel: 6.17.0-1021-nvidia on spark1; 6.17.0-1029-nvidia on spark2"
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["lost", "garbled"])
def test_one_that_cannot_be_read_is_its_own_failure(mode: str, fault: str) -> None:
    bad = Answers(second()) if fault == "lost" else Answers(second() | {"preflight-machine": "no such line\n"})
    if fault == "lost":
        bad.probe_raises = TimeoutError("timed out")
    ended = look(mode, Answers(node_of("preflight")), bad)
    assert ended.failed == ["spark2"], ended.reported
    assert [line for line in ended.reported if "[@fake/spark1] preflight" in line] == []
    assert bad.probes == 1, "the run waits for it once"


def test_one_alone_is_compared_with_the_operators_clock() -> None:
    late = node_of("preflight")
    late["preflight-now"] = late["preflight-now"].replace("1800000000", "1800000020")
    both = second(("1800000000", "1800000020"))
    assert look("yes", Answers(late), Answers(both)).failed == [], "the fleet agrees; the operator's clock is off"
    rack = rack_of({})
    ended = run(
        {"spark1": {"rack": rack, "node": rack.nodes["spark1"], "answers": Answers(late)}}, DEPLOYS["preflight"], "yes"
    )
    assert ended.failed == ["spark1"]
    assert "clock: 20.0 s ahead of the operator's machine" in ended.log


def test_what_no_operation_changes_is_asked_once() -> None:
    constant = host_facts._registered["preflight"].constant
    assert constant == {"/etc/os-release", "/proc/cmdline", "/etc/machine-id", "preflight-machine"}

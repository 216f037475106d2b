"""Packages change on one node at a time, and on no other node after one that failed."""

from __future__ import annotations

import pytest

from core.util.event import EventKind
from tests.unit.engine.fake_rack import planned
from tests.unit.ops.fakenode import Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, OPERATIONS, node_in, rack_of, read

CASE = read(OPERATIONS / "driver/installing-fails.yaml")


def install_on(mode: str, **nodes: Answers) -> Ended:
    rack = rack_of(CASE)
    hosts = {name: {"rack": rack, "node": rack.nodes[name], "answers": answers} for name, answers in nodes.items()}
    return run(hosts, DEPLOYS["driver"], mode)


def installs(answers: Answers) -> bool:
    return any("apt-get" in text for text, _ in answers.sent)


@pytest.mark.parametrize("mode", ["asked", "yes"])
def test_after_a_failure_no_other_is_touched(mode: str) -> None:
    nodes = [Answers(node_in("driver", CASE), fails=CASE["fails"]) for _ in range(2)]
    ended = install_on(mode, spark1=nodes[0], spark2=nodes[1])
    assert ended.failed == ["spark1", "spark2"]
    assert [installs(answers) for answers in nodes].count(True) == 1
    failed = "spark1" if installs(nodes[0]) else "spark2"
    assert f"not touched, since {failed} failed and nodes change one at a time" in ended.log


@pytest.mark.parametrize("mode", ["asked", "yes"])
def test_a_plan_that_ends_at_its_first_command_is_not_a_failure(mode: str) -> None:
    nodes = [Answers(node_in("driver", CASE)) for _ in range(2)]
    assert install_on(mode, spark1=nodes[0], spark2=nodes[1]).failed == []
    assert all(installs(answers) for answers in nodes)


@pytest.mark.parametrize("name", ["packages-garbled", "later-drop-in-wins"])
def test_a_plan_reports_the_blockers_of_the_role_once(name: str) -> None:
    case = read(OPERATIONS / f"driver/{name}.yaml")
    plan = planned(rack_of(case), {"spark1": Answers(node_in("driver", case))}, "driver")
    found = list(plan.hosts[0].events(EventKind.UNKNOWN, EventKind.REFUSED))
    assert len(found) == len({event.message for _, event in found}) > 0

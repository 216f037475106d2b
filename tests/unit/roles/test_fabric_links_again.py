"""A dead link is read again when a run reports it: an earlier operation of the run may have fixed the switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core.model.selection import select
from core.util.event import EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.execute import Executor
from tests.unit.engine.fake_rack import FILE, node_in, prepared
from tests.unit.engine.fake_run import Noted
from tests.unit.ops.fakenode import Answers
from tests.unit.roles.cases import OPERATIONS, rack_of, read

CASE = read(OPERATIONS / "fabric/link-without-a-signal.yaml")
DEAD = CASE["node"]["fabric-signals"]
NO_LINK = "enp1s0f1np1: no link: the cable, its other end or the port there is down"
SLOW = "enP2p1s0f1np1: linked at 50G, wanted 100G"
UP = DEAD.replace("Unknown!", "100000Mb/s").replace("detected: no", "detected: yes").replace("50000", "100000")
FIRST, SECOND = DEAD.partition("Settings for enP2")[::2]


class _Changing(Answers):
    """A node whose links are read in the plan, in the run, and again: `answers` has one value for each."""

    links: tuple[Any, ...]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name != "node":
            return found
        links = super().__getattribute__("links")
        return {**found, "fabric-signals": links[min(self.probes, len(links)) - 1]}


class _Observer(Noted):
    message = Noted.heard


def broken(*links: Any) -> tuple[list[str], int]:
    """What a run reports as broken, when the links answer so at each reading; and how often the node is read."""
    rack = rack_of(CASE)
    node: Mapping[str, Any] = node_in("fabric", CASE)
    answers = _Changing(node)
    answers.links = links
    with prepared(rack, {"spark1": answers}, select(rack, limit=["spark1"], only=["fabric"])) as session:
        plan = evaluate(session, FILE)
        assert [reported.message for _, reported in plan.hosts[0].events(EventKind.BROKEN)] == [NO_LINK, SLOW]
        noted = _Observer()
        assert Executor(session, noted).run()
    return [entry.message for _, entry in noted.reported if entry.kind is EventKind.BROKEN], answers.probes


def test_what_the_run_has_fixed_is_not_reported() -> None:
    assert broken(DEAD, DEAD, UP) == ([], 3)


def test_what_is_still_dead_is_reported() -> None:
    assert broken(DEAD, DEAD, DEAD) == ([NO_LINK, SLOW], 3)


def test_only_the_link_that_is_up_again_is_left_out() -> None:
    half = UP.partition("Settings for enP2")[0] + "Settings for enP2" + SECOND
    assert broken(DEAD, DEAD, half)[0] == [SLOW]


@pytest.mark.parametrize(
    "again",
    ["", UP.replace("100000Mb/s", "Unknown!"), {"exit": 1}, {"silent": True}],
    ids=["no answer of ethtool", "no speed", "failed", "no answer of the node"],
)
def test_without_proof_the_verdict_stays(again: Any) -> None:
    assert sorted(broken(DEAD, DEAD, again)[0]) == sorted([NO_LINK, SLOW])


def test_a_link_that_is_up_without_a_speed_is_unknown_and_not_in_sync() -> None:
    case = read(OPERATIONS / "fabric/link-without-a-signal.yaml")
    links = UP.replace("Speed: 100000Mb/s", "Speed: Unknown!", 1)
    assert links != UP
    node: Mapping[str, Any] = node_in("fabric", case)
    answers = Answers({**node, "fabric-signals": links})
    with prepared(
        rack_of(case), {"spark1": answers}, select(rack_of(case), limit=["spark1"], only=["fabric"])
    ) as session:
        plan = evaluate(session, FILE)
    made = drift_of(plan)
    assert [event.message for _, event in plan.hosts[0].events(EventKind.UNKNOWN)] == [
        "enp1s0f1np1: ethtool does not report the speed of the link; nothing was changed"
    ]
    assert (plan.code, made.code) == (1, 1)

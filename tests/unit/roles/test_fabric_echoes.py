"""The echoes of the fabric's proof, sent by a real shell: what answered, what did not, and what was never asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.model import reachable
from core.probes.protocol import UnknownError
from core.verify.measurements import parse_measurement
from core.verify.reporter import MEASURED, CheckReporter, properties_named
from roles.fabric import verify
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import calls, stand_in
from tests.unit.roles.checked_node import Machine

RACK = loaded(SWITCH)
PAIRS = [pair for pair in reachable(RACK) if pair[0].half.node == "spark1"]


def echoes(node: Path, ping: str) -> Mapping[str, Mapping[str, str]]:
    stand_in(node, "ping", ping)
    ask: Any = getattr(verify.echoes, "__wrapped__", verify.echoes)
    found: Mapping[str, Mapping[str, str]] = ask(RACK, {"spark1": Machine(node)}, frozenset({"spark1"}))
    return found


def judged(reported: Mapping[str, Mapping[str, str]], number: int = 0) -> bool | None:
    """What a report is reported of a pair; None: nothing."""
    properties: list[tuple[str, object]] = []
    try:
        verify.test_full_frames_reach(PAIRS[number], reported, RACK, CheckReporter(properties))
    except UnknownError:
        assert properties_named(properties, MEASURED) == ()
        return None
    except AssertionError:
        (value,) = map(parse_measurement, properties_named(properties, MEASURED))
        assert value.kind == "reach"
        assert value.reached is False
        return False
    (value,) = map(parse_measurement, properties_named(properties, MEASURED))
    assert value.kind == "reach"
    assert (value.sender, value.receiver, value.half, value.mtu) == ("spark1", "spark2", number, 9000)
    assert value.reached is True
    return True


def test_both_halves_are_asked_with_full_frames(tmp_path: Path) -> None:
    reported = echoes(tmp_path, "")
    assert [judged(reported, number) for number in (0, 1)] == [True, True]
    asked = sorted(call for call in calls(tmp_path) if call.startswith("ping"))
    assert asked == [
        "ping -q -n -c 3 -i 0.3 -W 1 -M do -s 8972 -I enP2p1s0f1np1 192.168.101.2",
        "ping -q -n -c 3 -i 0.3 -W 1 -M do -s 8972 -I enp1s0f1np1 192.168.100.2",
    ]


def test_one_half_alone(tmp_path: Path) -> None:
    reported = echoes(tmp_path, 'case "$*" in *enP2*) exit 1;; esac')
    assert [judged(reported, number) for number in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("code", "reached"), [(0, True), (1, False), (2, False), (126, None), (127, None), (137, None)]
)
def test_how_ping_ends(tmp_path: Path, code: int, reached: bool | None) -> None:
    assert judged(echoes(tmp_path, f"exit {code}")) is reached


@pytest.mark.parametrize("reported", ["", "garbage\n", "enp1s0f1np1 192.168.100.2 \n"])
def test_a_node_that_says_something_else(reported: str) -> None:
    class Says:
        def run(self, _: str) -> object:
            return type("Said", (), {"stdout": reported})

    ask: Any = getattr(verify.echoes, "__wrapped__", verify.echoes)
    assert judged(ask(RACK, {"spark1": Says()}, frozenset({"spark1"}))) is None

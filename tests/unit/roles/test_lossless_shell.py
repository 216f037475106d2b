"""The script that sets an interface, run by a real shell on a node like a real one, and what the probe then says."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.lossless import boot_unit, desired
from tests.unit.ops.shells import calls, run, stand_in
from tests.unit.roles.card import NAMES, asked, card, driver_answers, live, traffic_class

ROCE = boot_unit.script("two", dict.fromkeys(NAMES, "roce")).decode()
PAUSE = boot_unit.script("two", dict.fromkeys(NAMES, "pause")).decode()
NONE = boot_unit.script("two", {}).decode()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return card(tmp_path)


def set_by(script: str, node: Path, name: str = NAMES[0]) -> tuple[int, str]:
    done = run(f"set -- {name}\n{script}", node)
    driver_answers(node)
    return done.returncode, done.stderr


def faults(node: Path, policy: desired.Policy | None, name: str = NAMES[0]) -> list[str]:
    return [event.message for event in desired.problems(name, policy, live(node, name))]


def test_a_card_starts_as_pause_wants_it(node: Path) -> None:
    assert faults(node, "pause") == faults(node, None) == []
    assert faults(node, "roce") == [
        "enp1s0f1np1: pause rx on -> off",
        "enp1s0f1np1: pause tx on -> off",
        "enp1s0f1np1: flow control of priorities none -> 3 (takes its link down for a moment)",
        "enp1s0f1np1: priority of DSCP 26 none -> 3",
        "enp1s0f1np1: priority of DSCP 48 none -> 6",
        "enp1s0f1np1: RDMA traffic class none -> 106",
    ]


def test_roce(node: Path) -> None:
    for file in (desired.NOTICE, desired.REACT, desired.CNP):
        (node / "sys/class/net/enp1s0f1np1" / file).write_text("0\n")
    assert set_by(ROCE, node) == (0, "")
    assert faults(node, "roce") == []
    assert faults(node, "roce", NAMES[1]), "the other half was touched too"
    assert not [call for call in calls(node) if NAMES[1] in call and " set " in call]


@pytest.mark.parametrize("first", [ROCE, PAUSE, NONE])
@pytest.mark.parametrize(("script", "policy"), [(ROCE, "roce"), (PAUSE, "pause"), (NONE, None)])
def test_from_each_policy_to_each(node: Path, first: str, script: str, policy: desired.Policy | None) -> None:
    assert set_by(first, node)[0] == 0
    assert set_by(script, node) == (0, "")
    assert faults(node, policy) == []
    assert set_by(script, node) == (0, "")
    assert faults(node, policy) == []


def test_pause_goes_off_before_a_priority_is_lossless(node: Path) -> None:
    set_by(ROCE, node)
    set_by(PAUSE, node)
    sets = [call.split()[0] for call in calls(node) if " -A " in call or " pfc set " in call]
    assert sets == ["ethtool", "dcb", "dcb", "ethtool"]


def test_what_others_have_marked_stays(node: Path) -> None:
    run(f"dcb app replace dev {NAMES[0]} dscp-prio 26:5 46:3", node)
    traffic_class(node).write_text("Global tclass=96\n")
    assert set_by(PAUSE, node) == (0, "")
    assert faults(node, "pause") == []
    assert live(node)["priority of DSCP 26"] == "5"
    assert live(node)[desired.CLASS] == "96"


def test_the_kernels_own_driver_can_pause(tmp_path: Path) -> None:
    node = card(tmp_path, ofed=False)
    assert set_by(PAUSE, node) == (0, "")
    assert faults(node, "pause") == []


def test_the_kernels_own_driver_has_no_roce(tmp_path: Path) -> None:
    node = card(tmp_path, ofed=False)
    code, reported = set_by(ROCE, node)
    assert (code, reported) == (1, "enp1s0f1np1: its RDMA device has no traffic class to set\n")
    assert calls(node).count("sleep 1") == boot_unit.DEVICE_WAIT_SECONDS
    assert not [call for call in calls(node) if call.startswith(("ethtool", "dcb"))], "half of it was set"


def test_an_rdma_device_that_comes_late(tmp_path: Path) -> None:
    node = card(tmp_path)
    path = traffic_class(node)
    away = path.rename(tmp_path / "late")
    stand_in(node, "sleep", f"[ $(grep -c sleep {node}/calls) -lt 3 ] || mv {away} {path}")
    assert set_by(ROCE, node) == (0, "")
    assert faults(node, "roce") == []


@pytest.mark.parametrize("map_", ["26:3", "48:6"])
def test_a_priority_that_was_not_taken_is_seen(node: Path, map_: str) -> None:
    """`dcb app replace` ends with 0 all the same."""
    real = node / "real/dcb"
    real.parent.mkdir()
    (node / "bin/dcb").rename(real)
    other = {"26:3": "48:6", "48:6": "26:3"}[map_]
    stand_in(node, "dcb", f'[ "$2" != replace ] || set -- app replace dev "$4" dscp-prio {other}; {real} "$@"')
    assert set_by(ROCE, node) == (1, f"enp1s0f1np1: DSCP:priority {map_} is not taken\n")


@pytest.mark.parametrize("tool", ["ethtool", "dcb"])
@pytest.mark.parametrize("script", [ROCE, PAUSE])
def test_a_tool_that_fails_fails_the_unit(node: Path, script: str, tool: str) -> None:
    stand_in(node, tool, "exit 5")
    assert set_by(script, node)[0] != 0


def test_a_file_that_cannot_be_written_fails_the_unit(node: Path) -> None:
    path = node / "sys/class/net/enp1s0f1np1" / desired.REACT
    path.unlink()
    path.mkdir()
    assert set_by(ROCE, node)[0] != 0


def test_without_tools_the_probe_still_answers(tmp_path: Path) -> None:
    node = card(tmp_path)
    for tool in ("ethtool", "dcb"):
        (node / "bin" / tool).unlink()
        stand_in(node, tool, f"echo sh: {tool}: not found; exit 127")
    with pytest.raises(ValueError, match=r"cannot be asked without ethtool \(package ethtool\)"):
        live(node)


def test_a_node_without_such_interfaces_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/enP7s7").mkdir(parents=True)
    (tmp_path / "sys/class/net/enp1s0f1np1_rep").mkdir()
    assert asked(tmp_path) == ""
    assert desired.live("", NAMES[0]) is None

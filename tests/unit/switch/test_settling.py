"""Waiting for links: at the switch's end, at the nodes' end, and no longer than said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from switch.batch import Link
from switch.errors import CheckError
from switch.line import SessionLine
from switch.plan import plan
from switch.safemode import TAKE
from switch.settling import settled
from switch.witness import Seen

from .memory import Clock, Device
from .racks import MakeRack
from .rows import carry_out, reading


@pytest.fixture
def links(rack: MakeRack, device: Device) -> tuple[Link, ...]:
    """The legs of a cage that was written just now."""
    todo = plan(*rack(), reading(device.tables))
    carry_out(device.tables, todo.changes)
    return todo.batches[1].settles


@pytest.fixture
def line(device: Device) -> SessionLine:
    line = device.line()
    line.talk(*TAKE)
    return line


def test_links_that_are_up_are_not_waited_for(line: SessionLine, links: tuple[Link, ...], clock: Clock) -> None:
    start = clock.now
    settled(line, links, 60, None)
    assert clock.now == start


def test_links_are_waited_for_and_told_of_now_and_then(
    device: Device, line: SessionLine, links: tuple[Link, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "initializing"}
    clock.events[clock.now + 25] = device.down.clear
    start = clock.now
    settled(line, links, 60, None)
    assert 25 <= clock.now - start < 27
    assert [text.split(",")[0] for text in device.said] == ["waiting for links"] * 2, "every ten seconds"
    assert "crs812/qsfp56-dd-1-3" in device.said[0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"status": "no-link"}, "is no-link, should be up at 100G"),
        ({"status": "link-ok", "rate": "50Gbps"}, "is link-ok at 50Gbps, should be up at 100G"),
        ({"status": "link-ok"}, "is link-ok at no rate, should be up at 100G"),
        ({"status": "link-ok", "rate": "unknown"}, "is link-ok at unknown, should be up at 100G"),
        ({"name": "another"}, "is not reported, should be up at 100G"),
    ],
)
def test_a_leg_that_is_not_up_ends_it(
    device: Device, line: SessionLine, links: tuple[Link, ...], clock: Clock, row: dict[str, str], said: str
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3"} | row
    start = clock.now
    with pytest.raises(CheckError) as raised:
        settled(line, links, 60, None)
    assert str(raised.value) == f"after 60 s leg crs812/qsfp56-dd-1-3 (lanes 3-4, to spark2/1) {said}"
    assert 60 <= clock.now - start < 62


def test_a_hold_lost_while_links_are_waited_for_ends_the_waiting(
    device: Device, line: SessionLine, links: tuple[Link, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    start = clock.now
    clock.events[start + 3] = lambda: setattr(device, "safe", {"enabled": "false", "current": "false"})
    with pytest.raises(CheckError, match="not ours any more"):
        settled(line, links, 60, None)
    assert clock.now - start < 5


def answering(*answers: Seen) -> tuple[Callable[[Sequence[Link]], Seen], list[Sequence[Link]]]:
    """A witness that says one after the other, the last for ever; and what it was asked."""
    asked: list[Sequence[Link]] = []

    def look(links: Sequence[Link]) -> Seen:
        asked.append(links)
        return answers[min(len(asked), len(answers)) - 1]

    return look, asked


def test_a_link_is_up_when_its_node_says_so_too(
    line: SessionLine, links: tuple[Link, ...], clock: Clock, device: Device
) -> None:
    witness, asked = answering(Seen(("spark1/enp1s0f1np1: sees no link",), ()), Seen((), ()))
    settled(line, links, 60, witness)
    assert asked == [links, links]
    assert device.said == []


def test_a_node_that_disagrees_for_too_long_ends_it(line: SessionLine, links: tuple[Link, ...], clock: Clock) -> None:
    witness, _ = answering(Seen(("spark1/enp1s0f1np1: runs at 50000Mb/s",), ()))
    with pytest.raises(CheckError, match="after 20 s spark1/enp1s0f1np1: runs at 50000Mb/s"):
        settled(line, links, 20, witness)


def test_a_node_that_cannot_tell_is_named_once(line: SessionLine, links: tuple[Link, ...], device: Device) -> None:
    witness, _ = answering(Seen((), ("spark1/enp1s0f1np1: spark1 is not in this run",)))
    settled(line, links, 60, witness)
    assert device.said == ["only the switch's word for it: spark1 is not in this run (spark1/enp1s0f1np1)"]


def test_nodes_are_not_asked_before_the_switch_is_content(
    device: Device, line: SessionLine, links: tuple[Link, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    witness, asked = answering(Seen((), ()))
    with pytest.raises(CheckError):
        settled(line, links, 5, witness)
    assert asked == []

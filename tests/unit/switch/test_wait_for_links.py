"""Waiting for links: at the switch's end, at the nodes' end, and no longer than said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from core.routeros.change_plan import AffectedLink
from core.routeros.errors import CheckError
from core.routeros.safe_mode import TAKE
from core.routeros.session import SessionConnection
from switch.link_witness import HalfReport, WitnessReport
from switch.plan import plan
from switch.wait_for_links import wait_for_links
from tests.unit.switch.in_memory_switch import Clock, Device
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import carry_out, reading


@pytest.fixture
def links(rack: MakeRack, device: Device) -> tuple[AffectedLink, ...]:
    """The legs of a cage that was written just now."""
    todo = plan(*rack(), reading(device.tables))
    carry_out(device.tables, todo.changes)
    return todo.batches[1].settles


@pytest.fixture
def line(device: Device) -> SessionConnection:
    line = device.line()
    line.talk(*TAKE)
    return line


def test_links_that_are_up_are_not_waited_for(
    line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock
) -> None:
    start = clock.now
    wait_for_links(line, links, 60, None)
    assert clock.now == start


def test_links_are_waited_for_and_reported_of_now_and_then(
    device: Device, line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "initializing"}
    clock.events[clock.now + 25] = device.down.clear
    start = clock.now
    wait_for_links(line, links, 60, None)
    assert 25 <= clock.now - start < 27
    assert [text.split(",")[0] for text in device.reported] == ["waiting for links"] * 2, "every ten seconds"
    assert "crs812/qsfp56-dd-1-3" in device.reported[0]


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        ({"status": "no-link"}, "is no-link, should be up at 100G"),
        ({"status": "link-ok", "rate": "50Gbps"}, "is link-ok at 50Gbps, should be up at 100G"),
        ({"status": "link-ok"}, "is link-ok at no rate, should be up at 100G"),
        ({"status": "link-ok", "rate": "unknown"}, "is link-ok at unknown, should be up at 100G"),
        ({"name": "another"}, "is not reported, should be up at 100G"),
    ],
)
def test_a_leg_that_is_not_up_ends_it(
    device: Device,
    line: SessionConnection,
    links: tuple[AffectedLink, ...],
    clock: Clock,
    row: dict[str, str],
    reported: str,
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3"} | row
    start = clock.now
    with pytest.raises(CheckError) as raised:
        wait_for_links(line, links, 60, None)
    assert str(raised.value) == f"after 60 s leg crs812/qsfp56-dd-1-3 (lanes 3-4, to spark2/1) {reported}"
    assert 60 <= clock.now - start < 62


def test_a_hold_lost_while_links_are_waited_for_ends_the_waiting(
    device: Device, line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    start = clock.now
    clock.events[start + 3] = lambda: setattr(device, "safe", {"enabled": "false", "current": "false"})
    with pytest.raises(CheckError, match="not ours any more"):
        wait_for_links(line, links, 60, None)
    assert clock.now - start < 5


def answering(
    *answers: WitnessReport,
) -> tuple[Callable[[Sequence[AffectedLink]], WitnessReport], list[Sequence[AffectedLink]]]:
    """A witness that says one after the other, the last for ever; and what it was asked."""
    asked: list[Sequence[AffectedLink]] = []

    def look(links: Sequence[AffectedLink]) -> WitnessReport:
        asked.append(links)
        return answers[min(len(asked), len(answers)) - 1]

    return look, asked


def test_a_link_is_up_when_its_node_says_so_too(
    line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock, device: Device
) -> None:
    witness, asked = answering(
        WitnessReport((HalfReport("spark1/enp1s0f1np1", "sees no link"),), ()), WitnessReport((), ())
    )
    wait_for_links(line, links, 60, witness)
    assert asked == [links, links]
    assert device.reported == []


def test_a_node_that_disagrees_for_too_long_ends_it(
    line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock
) -> None:
    witness, _ = answering(WitnessReport((HalfReport("spark1/enp1s0f1np1", "runs at 50000Mb/s"),), ()))
    with pytest.raises(CheckError, match="after 20 s spark1/enp1s0f1np1: runs at 50000Mb/s"):
        wait_for_links(line, links, 20, witness)


def test_a_node_that_does_not_know_is_named_once(
    line: SessionConnection, links: tuple[AffectedLink, ...], device: Device
) -> None:
    witness, _ = answering(WitnessReport((), (HalfReport("spark1/enp1s0f1np1", "spark1 is not in this run"),)))
    wait_for_links(line, links, 60, witness)
    assert device.reported == ["only the switch's word for it: spark1 is not in this run (spark1/enp1s0f1np1)"]


def test_nodes_are_not_asked_before_the_switch_is_content(
    device: Device, line: SessionConnection, links: tuple[AffectedLink, ...], clock: Clock
) -> None:
    device.down["qsfp56-dd-1-3"] = {"name": "qsfp56-dd-1-3", "status": "no-link"}
    witness, asked = answering(WitnessReport((), ()))
    with pytest.raises(CheckError):
        wait_for_links(line, links, 5, witness)
    assert asked == []

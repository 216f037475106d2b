"""The screen of `sparkrack watch` on a small terminal: eight nodes, a unit, a switch and more alerts than fit."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from sparkrack.watch.model import (
    ActiveAlert,
    UnreadPart,
    WatchedLeg,
    WatchedNode,
    WatchedSwitch,
    WatchedUnit,
    WatchReport,
)
from sparkrack.watch.render import WatchScreen, show

MADE = datetime(2026, 11, 25, 9, 53, 12, tzinfo=UTC)
NODES = [f"spark{number}" for number in range(1, 9)]


def alert(number: int) -> ActiveAlert:
    return ActiveAlert(
        name="MemoryNearFloor",
        severity="page",
        state="firing",
        since=MADE,
        node=f"spark{number}",
        summary=f"spark{number} has 3.725GiB available, near the floor of its memory guard",
        runbook="docs/runbooks/watch.md#memorynearfloor",
    )


def report(alerts: int = 0) -> WatchReport:
    """A rack under load, with so many alerts."""
    legs = [
        WatchedLeg(leg=f"crs812/qsfp56-dd-{cage}-{lane}", to=f"{node}/1", up=node != "spark8", gbps=100, fec="fec91")
        for (cage, lane), node in zip([(cage, lane) for cage in (1, 2) for lane in (1, 3, 5, 7)], NODES, strict=True)
    ]
    return WatchReport(
        rack="eight",
        made=MADE,
        server="http://10.77.0.15:9090",
        nodes=tuple(
            WatchedNode(
                name=name,
                up=name != "spark7",
                memory_available=100 * 2**30,
                memory_total=119 * 2**30,
                memory_stalled=0.01,
                links_up=2,
                links=2,
                gpu_clock=2405,
                gpu_power=87.4,
                gpu_margin=21,
                gpu_utilization=0.97,
            )
            for name in NODES
        ),
        unread=(),
        units=(WatchedUnit(name="deepseek-v4-flash", node="spark1", up=True, running=12, waiting=3, cache=0.41),),
        switches=(
            WatchedSwitch(
                name="crs812",
                declared=True,
                up=True,
                reason="",
                unread=(),
                age=24,
                temperature=58,
                fans=4,
                fans_turning=4,
                psus_ok=1,
                psus_expected=1,
                pauses=120_000,
                drops=0,
                legs=tuple(legs),
            ),
        ),
        alerts=tuple(alert(number) for number in range(1, alerts + 1)),
    )


def drawn(found: WatchReport, height: int = 24) -> list[str]:
    """The rows of a terminal of 80 columns."""
    paper = io.StringIO()
    console = Console(file=paper, width=80, height=height, force_terminal=True, color_system=None)
    console.print(WatchScreen(found))
    return paper.getvalue().splitlines()


def test_everything_is_whole_at_80_columns() -> None:
    rows = drawn(report())
    assert max(map(len, rows)) <= 80
    text = "\n".join(rows)
    assert "…" not in text
    assert "spark1  2405       87       21        97%   100/119G  1%       2/2" in text
    assert "spark7  silent" in text
    assert "deepseek-v4-flash  spark1  up     12       3        41%" in text
    assert "crs812  58         4/4   1/1   7/8   120000    0        24 s ago" in text
    assert "crs812: no link: crs812/qsfp56-dd-2-7 to spark8/1" in text
    assert "crs812: legs with a link: 7 at 100G with FEC fec91" in text
    assert len(rows) <= 24


@pytest.mark.parametrize("alerts", [1, 2, 5, 40])
def test_alerts_never_push_the_rack_off_the_screen(alerts: int) -> None:
    rows = drawn(report(alerts))
    assert len(rows) <= 24
    text = "\n".join(rows)
    assert text.startswith("node")
    assert "7 of 8 nodes answer" in " ".join(rows[-2:])
    shown = text.count("page MemoryNearFloor since 09:53:12 UTC: spark")
    left = sum(int(row.split()[1]) for row in rows if row.endswith(" more: sparkrack watch --once"))
    assert shown + left == alerts
    assert shown >= 1


def test_alerts_are_whole_where_there_is_room() -> None:
    text = "".join(drawn(report(5), height=60))
    assert text.count("memorynearfloor") == 5
    assert "…" not in text


def test_a_machine_that_cannot_be_read_makes_the_exit_code() -> None:
    found = report()
    (switch,) = found.switches
    every = [one.model_copy(update={"up": True}) for one in found.nodes]
    for changed, code in (
        ({}, 0),
        ({"up": None, "reason": "there is no reading"}, 1),
        ({"up": False, "reason": "it does not answer its reader: unreachable"}, 2),
        ({"unread": ("fans",)}, 1),
        ({"up": None, "declared": False, "reason": "not read: watch.switch is false"}, 0),
    ):
        one = switch.model_copy(update=changed)
        assert found.model_copy(update={"nodes": tuple(every), "switches": (one,)}).exit == code, changed
    unread = (UnreadPart(part="alerts", reason="query timed out"),)
    assert found.model_copy(update={"nodes": tuple(every), "unread": unread}).exit == 1


def test_a_text_of_the_switch_stays_one_line() -> None:
    (switch,) = report().switches
    found = report().model_copy(
        update={"switches": (switch.model_copy(update={"unread": ("fans\nspark1: x\x1b[2J",)}),)}
    )
    paper = io.StringIO()
    show(found, Console(file=paper, width=80, highlight=False, markup=False))
    assert "\x1b" not in paper.getvalue()
    assert "\nspark1: x" not in paper.getvalue()

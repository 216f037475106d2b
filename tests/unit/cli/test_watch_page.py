"""What the page of `sparkrack watch` draws, from a real Prometheus; how it looks: tests/browser/test_watch_page.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparkrack.watch.collect import collect
from sparkrack.watch.history import CURVES, Boot, Curve, Drawn, History, Limit, Window, history, threshold
from sparkrack.watch.model import ActiveAlert, ActiveSilence, WatchReport
from sparkrack.watch.prometheus_api import PrometheusApi
from sparkrack.watch.render import firing
from sparkrack.watch.report_html import (
    clock,
    page,
    percent,
    picture,
    runbook_sections,
    time_ticks,
    value_ticks,
    verdict,
)
from tests.unit.roles.healthy_watch import ALERTS, RUNBOOK
from tests.unit.roles.test_watch_switch_rules import ALERTS as SWITCH_ALERTS
from tests.unit.roles.watch_history import AWAY, SLOW, RecordedRack, recorded

RULES = ALERTS | SWITCH_ALERTS
NAMES = r"\b(?:sparkrack|node|vllm|sglang)[_:][A-Za-z_:]+\b"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRack]:
    with recorded(tmp_path_factory.mktemp("history")) as found:
        yield found


@pytest.fixture(scope="module")
def past(server: RecordedRack) -> History:
    return history(PrometheusApi(server.url), server.end)


def seconds(server: RecordedRack, minute: int) -> float:
    return server.end - 360 * 60 + minute * 60


def of(past: History, kind: str, name: str, title: str) -> Drawn:
    (found,) = [one for one in past.of(kind, name) if one.curve.title == title]
    return found


def test_a_boot_is_marked_at_its_time(server: RecordedRack, past: History) -> None:
    assert [(one.node, one.at) for one in past.boots] == [("spark2", seconds(server, AWAY.stop - 1))]
    (mark,) = picture(of(past, "node", "spark2", "Memory available"), past).boots
    assert mark.at == percent(seconds(server, AWAY.stop - 1), past.window)
    assert not picture(of(past, "node", "spark1", "Memory available"), past).boots


def test_boots_one_after_the_other_have_marks_and_one_text() -> None:
    window = Window(0, 36000)
    boots = tuple(Boot("spark1", at) for at in (1000.0, 2000.0, 30000.0))
    drawn = Drawn(Curve("node", "Load", "tasks", ""), "spark1", (("", ((0.0, 1.0),)),), ())
    marks = picture(drawn, History(window, (), boots, (), ())).boots
    assert [(one.at, one.text) for one in marks] == [(2.78, "00:16"), (5.56, ""), (83.33, "08:20")]


def test_an_alert_is_marked_from_its_start_to_its_end(server: RecordedRack, past: History) -> None:
    """And shades the curve that it is about, of its own machine only."""
    (slow,) = [one for one in past.fired if one.alert == "ClockStuckLow"]
    ((start, end),) = slow.spans
    # Prometheus goes on with the last value for 5 minutes, where no scrape says that the alert is over.
    assert abs(start - seconds(server, SLOW.start + 2)) <= 2 * past.window.step
    assert 0 <= end - seconds(server, SLOW.stop - 1) <= 300 + past.window.step
    assert (slow.severity, slow.about) == ("page", "spark1")
    (bar,) = picture(of(past, "node", "spark1", "Clock of the GPU"), past).shades
    assert bar.left == percent(start, past.window)
    assert not picture(of(past, "node", "spark1", "Power of the GPU"), past).shades
    assert [one.severity for one in picture(of(past, "node", "spark2", "Clock of the GPU"), past).shades] == ["page"], (
        "only that spark2 was silent"
    )


def test_an_alert_that_always_fires_is_not_something_that_happened(past: History) -> None:
    assert {one.severity for one in past.fired} == {"page", "ticket", "info"}


def test_every_port_of_the_switch_has_its_curves(server: RecordedRack, past: History) -> None:
    """With what its two halves carry, and with the alerts of the interfaces of its node."""
    assert {one.name for one in past.drawn if one.curve.of == "leg"} == {
        f"crs812/{leg.interface}" for leg, _ in server.rack.cabling.legs("crs812")
    }
    traffic = of(past, "leg", "crs812/qsfp56-dd-1-5", "Link and traffic")
    assert sorted(name for name, _ in traffic.series) == ["from the node", "link", "to the node"]
    assert [(limit.alert, value) for limit, value in traffic.limits] == [("LinkSlow", 200)]
    links = dict(traffic.series)["link"]
    assert {value for _, value in links} == {0, 200}, "a leg without a link is at 0"
    assert max(value for _, value in dict(traffic.series)["to the node"]) > 150
    assert [one.text for one in picture(traffic, past).shades], "LinkDown of the interface at its other end"
    frames = of(past, "leg", "crs812/qsfp56-dd-1-1", "Frames")
    assert sorted(name for name, _ in frames.series) == ["dropped", "pauses received", "pauses sent", "with errors"]
    assert picture(frames, past).firing == {"SwitchDrops": "ticket"}


def test_every_curve_has_values(past: History) -> None:
    assert past.unread == ()
    assert [one.title for one in CURVES if not [drawn for drawn in past.drawn if drawn.curve == one]] == []


def test_limits_are_those_of_rules_and_rack(past: History) -> None:
    assert {
        (one.name, limit.alert): value
        for one in past.drawn
        if one.curve.title in ("Clock of the GPU", "Memory available")
        for limit, value in one.limits
    } == {
        # spark1 is of the vendor that has a cap; the floor is the default of the role memory.
        ("spark1", "ClockAboveCap"): 2200,
        ("spark1", "ClockStuckLow"): 1000,
        ("spark2", "ClockStuckLow"): 1000,
        ("spark1", "MemoryNearFloor"): 4.5,
        ("spark1", "GuardFired"): 3,
        ("spark2", "MemoryNearFloor"): 4.5,
        ("spark2", "GuardFired"): 3,
    }


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve.of}: {curve.title}")
def test_a_curve_is_compared_with_what_its_alerts_look_at(curve: Curve) -> None:
    for limit in curve.limits:
        named = set(re.findall(NAMES, str(RULES[limit.alert]["expr"])))
        assert named & set(re.findall(NAMES, f"{curve.query} {limit.query}")) or limit.alert == "GuardFired", limit
        if not limit.query:
            number = threshold(limit.alert)
            assert re.search(rf"[<>] ({number:g}|{number:.0e}|{number / 1e9:g}e9)\b", str(RULES[limit.alert]["expr"]))
    assert {alert for alert in curve.shaded if alert not in RULES} == set()


def test_a_rule_without_a_number_has_no_threshold() -> None:
    with pytest.raises(ValueError, match="the rule of SwitchFan compares with no number"):
        threshold("SwitchFan")


def test_a_curve_is_broken_where_values_are_missing() -> None:
    """A node that was off leaves a gap, and no line across it."""
    window = Window(0, 2400)
    values = tuple((float(at), float(at % 50)) for at in (*range(0, 1000, 10), *range(1500, 2400, 10)))
    drawn = Drawn(Curve("node", "Load", "tasks", ""), "spark1", (("", values),), ())
    (line,) = picture(drawn, History(window, (), (), (), ())).lines
    assert [len(part.split()) for part in line.parts] == [100, 90]
    assert line.last == "40"
    assert line.extremes == "lowest 0 at 00:00, highest 40 at 00:00"
    old = Drawn(drawn.curve, "spark1", (("", values[:100]),), ())
    assert picture(old, History(window, (), (), (), ())).lines[0].last == "40, last at 00:16"


def test_the_axis_of_time_has_hours_and_dates() -> None:
    start = datetime(2026, 12, 31, 20, 30, tzinfo=UTC).timestamp()
    window = Window(start, start + 6 * 3600)
    assert [(one.text, one.date) for one in time_ticks(window)] == [
        ("21:00", ""),
        ("22:00", "31 Dec"),
        ("23:00", ""),
        ("00:00", "01 Jan"),
        ("01:00", ""),
        ("02:00", ""),
    ]
    assert time_ticks(window)[0].at == pytest.approx(100 / 12, abs=0.01)
    # 5 min from the edges there is a mark, and no room for its text.
    early = Window(start + 25 * 60, start + 25 * 60 + 6 * 3600)
    assert [(one.text, one.date) for one in time_ticks(early)][:2] == [("", ""), ("22:00", "31 Dec")]
    late = Window(start - 25 * 60, start - 25 * 60 + 6 * 3600)
    assert [(one.text, one.date) for one in time_ticks(late)][-2:] == [("01:00", ""), ("", "")]
    # The hour before a new day has no room for a date of its own.
    before = datetime(2026, 12, 31, 21, 45, tzinfo=UTC).timestamp()
    assert [(one.text, one.date) for one in time_ticks(Window(before, before + 6 * 3600))][:3] == [
        ("", ""),
        ("23:00", ""),
        ("00:00", "01 Jan"),
    ]
    # Midnight 30 min before the edge has room for its hour alone.
    midnight = datetime(2027, 1, 1, 0, 30, tzinfo=UTC).timestamp()
    assert [(one.text, one.date) for one in time_ticks(Window(midnight - 6 * 3600, midnight))][-2:] == [
        ("23:00", ""),
        ("00:00", ""),
    ]
    assert clock(start, window) == "31 Dec 20:30"
    assert clock(window.end, window) == "02:30"


@pytest.mark.parametrize(
    ("smallest", "largest", "wanted"),
    [
        (0, 0, (0, 0.25, 0.5, 0.75, 1)),
        (0, 2200, (0, 1000, 2000, 3000)),
        (0, 95, (0, 25, 50, 75, 100)),
        (-3, 20, (-10, 0, 10, 20)),
        (0, 0.004, (0, 0.001, 0.002, 0.003, 0.004)),
    ],
)
def test_the_axis_of_values_has_round_numbers(smallest: float, largest: float, wanted: tuple[float, ...]) -> None:
    assert value_ticks(smallest, largest) == pytest.approx(wanted)


def test_a_runbook_has_its_links_in_words() -> None:
    found = runbook_sections(RUNBOOK)
    assert found.keys() >= RULES.keys()
    assert not [name for name, text in found.items() if "href" in text]
    assert "node-lost (<code>docs/runbooks/node-lost.md</code>)" in found["NodeSilent"]
    assert runbook_sections(Path("/nonexistent/watch.md")) == {}


def report(server: RecordedRack) -> WatchReport:
    return collect(server.rack, (*server.rack.nodes, *server.rack.switches), PrometheusApi(server.url))


def test_what_is_to_be_done_stands_before_what_is_only_reported(server: RecordedRack) -> None:
    found = report(server)
    assert [one.severity for one in found.alerts if one.severity == "info"], "the rack has one"
    order = [(one.severity == "info", one.state != "firing") for one in found.alerts]
    assert order == sorted(order)
    info = ActiveAlert(name="X", severity="info", state="firing", since=None, node="", summary="", runbook="")
    only = found.model_copy(update={"alerts": (info, info.model_copy(update={"state": "pending"}))})
    assert firing(only) == "0 pages, 0 tickets, 1 info fire, 1 pending"
    assert "0 pages, 0 tickets, 1 info fire, 1 pending" in page(only, PrometheusApi(server.url))


def test_a_silence_is_seen(server: RecordedRack) -> None:
    """And one that no run made is something to look at."""
    api = PrometheusApi(server.url)
    silence = ActiveSilence(by="ops", until=None, matchers='severity=~".+"', comment="quiet", of_run=False)
    found = report(server).model_copy(update={"alerts": (), "silences": (silence,)})
    assert verdict(found) == "ticket"
    assert "not of a run: alerts with severity=~&#34;.+&#34; are silenced until ? by ops: quiet" in page(found, api)
    planned = silence.model_copy(update={"of_run": True})
    assert verdict(found.model_copy(update={"silences": (planned,)})) == "fine"


def test_a_page_without_its_runbook_names_where_it_is(server: RecordedRack) -> None:
    made = page(report(server), PrometheusApi(server.url), Path("/nonexistent/watch.md"))
    assert "<code>docs/runbooks/watch.md#memorynearfloor</code>" in made
    assert 'href="#runbook' not in made
    assert 'href="#runbook-MemoryNearFloor"' in page(report(server), PrometheusApi(server.url))


def test_a_picture_that_prometheus_cannot_answer_is_unknown(
    server: RecordedRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are there, and the page says which is missing."""
    limit = Limit("HotZone", "x", "wrong{")
    broken = (Curve("node", "Broken", "", "also wrong{"), Curve("node", "Half", "", "node_load1", (limit,)), CURVES[0])
    monkeypatch.setattr("sparkrack.watch.history.CURVES", broken)
    found = history(PrometheusApi(server.url), server.end)
    assert [text.partition(":")[0] for text in found.unread] == ["Broken of each node", "limit of HotZone"]
    assert {one.curve.title for one in found.drawn} == {"Half", "Clock of the GPU"}
    assert "unknown: Broken of each node: " in page(report(server), PrometheusApi(server.url))

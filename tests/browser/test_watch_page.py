"""The page of `sparkrack watch --html` in a real browser: it fits, can be read, and shows when things happened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparkrack.watch.collect import collect
from sparkrack.watch.prometheus_api import PrometheusApi, Range
from sparkrack.watch.report_html import page
from tests.browser.browser import MISSING, Browser
from tests.browser.page_checks import (
    COMPARED,
    WIDTHS,
    check_that_it_can_be_read,
    check_that_it_fits,
    check_that_nothing_is_asked_for,
)
from tests.unit.roles.watch_history import AWAY, MINUTES, RecordedRack, recorded

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

HOSTILE = "</svg><script>document.title = 1</script>"
MINUTES_OF_AN_HOUR = (1, 14, 21, 39, 46, 59)
AFTER_MIDNIGHT = (105, 118, 125, 130, 135, 150, 320, 345, 395, 430)
"""100 and the minutes after midnight at which the last hours end: the day begins near an edge, or after one hour."""
SENSOR = f'sparkrack_switch_temperature_celsius{{job="node",node="spark1",switch="crs812",sensor="{HOSTILE}"}}'

STROKES = """
const channel = part => part <= 10 ? part / 3294 : Math.pow((part / 255 + 0.055) / 1.055, 2.4);
const light = text => (text.match(/[0-9.]+/g) || []).map(Number).map(channel)
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722, 0][at], 0);
const ground = light(getComputedStyle(document.querySelector("section")).backgroundColor);
return [...document.querySelectorAll("polyline, path:not(.grid)")].map(one => {
  const pair = [light(getComputedStyle(one).stroke), ground].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), one.getAttribute("class")];
});
"""
"""Every line of a picture: its contrast to the ground, and what it is."""

OVERLAPS = """
const boxes = selector => [...document.querySelectorAll(selector)].map(list =>
  [...list.querySelectorAll(":scope > span")].map(one => [one.getBoundingClientRect(), one.textContent]));
return [...boxes(".hours"), ...boxes(".scale")].flatMap(list => list.slice(1).filter(([box], at) => {
  const before = list[at][0];
  return box.left < before.right && before.left < box.right && box.top < before.bottom && before.top < box.bottom;
}).map(([, text]) => text));
"""
"""The marks of the axes that stand on the mark before."""

OUTSIDE = """
return [...document.querySelectorAll(".plot")].flatMap(plot => {
  const box = plot.getBoundingClientRect();
  const parts = [...plot.querySelectorAll("polyline, path, rect, .bootmark")];
  return parts.map(one => one.getBoundingClientRect()).filter(one =>
    one.left < box.left - 2 || one.right > box.right + 2 || one.top < box.top - 20 || one.bottom > box.bottom + 2)
    .map(one => [one.left - box.left, one.right - box.right, one.top - box.top, one.bottom - box.bottom]);
});
"""
"""What stands outside of the area of its picture, by its edges."""

HOURS = """
const chart = [...document.querySelectorAll("#node-spark2 .chart")][0];
const middle = one => { const box = one.getBoundingClientRect(); return (box.left + box.right) / 2; };
return [[...chart.querySelectorAll(".hours span")].map(one => [one.firstChild.textContent, middle(one)]),
  middle(chart.querySelector("path.boot"))];
"""
"""The hours of the first picture of spark2, each with its place, and the place of the boot."""


class ShiftedApi(PrometheusApi):
    """A Prometheus whose clock is some seconds ahead, so that the page does not depend on the time of the test."""

    def __init__(self, url: str, ahead: float) -> None:
        super().__init__(url)
        self._ahead = ahead

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Range]:
        found = super().query_range(expression, start - self._ahead, end - self._ahead, step)
        return [Range(one.labels, tuple((at + self._ahead, value) for at, value in one.values)) for one in found]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRack]:
    with recorded(tmp_path_factory.mktemp("history"), **{SENSOR: lambda _: 41.0}) as found:
        yield found


@pytest.fixture(scope="module")
def pages(server: RecordedRack, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The page as made now, at some minutes of an hour before, where a full hour is at another place, just after the
    boot of spark2 (-1), and AFTER_MIDNIGHT.
    """
    api, folder = PrometheusApi(server.url), tmp_path_factory.mktemp("page")
    report = collect(server.rack, (*server.rack.nodes, *server.rack.switches), api)
    files = {}
    booted = datetime.fromtimestamp(server.end - (MINUTES - AWAY.stop + 1) * 60, UTC)
    times = {minute: report.made.replace(minute=minute) - timedelta(hours=1) for minute in MINUTES_OF_AN_HOUR}
    for minute, made in {**times, 0: report.made, -1: booted + timedelta(seconds=90)}.items():
        files[minute] = folder / f"watch-{minute}.html"
        files[minute].write_text(page(report.model_copy(update={"made": made}), api))
    midnight = report.made.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    for number in AFTER_MIDNIGHT:
        made = midnight + timedelta(minutes=number - 100)
        ahead = (made - report.made).total_seconds()
        files[number] = folder / f"watch-midnight-{number}.html"
        files[number].write_text(page(report.model_copy(update={"made": made}), ShiftedApi(server.url, ahead)))
    return files


@pytest.fixture
def made(pages: dict[int, Path]) -> Path:
    """The page of now."""
    return pages[0]


def test_it_asks_for_nothing_and_runs_nothing(chromium: Browser, made: Path) -> None:
    check_that_nothing_is_asked_for(chromium, made, "two: Look now")
    assert HOSTILE in chromium.run("return document.body.innerText")


@pytest.mark.parametrize("minute", [0, -1, *MINUTES_OF_AN_HOUR, *AFTER_MIDNIGHT])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_no_mark_of_an_axis_covers_another(
    chromium: Browser, pages: dict[int, Path], width: int, minute: int
) -> None:
    check_that_it_fits(chromium, pages[minute], width)
    assert chromium.run("return document.querySelectorAll('.plot').length") > 25
    assert chromium.run(OUTSIDE) == []
    assert chromium.run(OVERLAPS) == []
    box = chromium.run("return document.querySelector('#alerts li.page').getBoundingClientRect().toJSON()")
    assert 0 < box["bottom"] <= 700, "the worst alert is seen at once"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read(chromium: Browser, made: Path, width: int, dark: bool) -> None:
    check_that_it_can_be_read(chromium, made, width, 200, dark=dark)
    lines = chromium.run(STROKES)
    assert {kind for _, kind in lines} >= {"line0", "line1", "line2", "limit", "boot"}
    assert not [line for line in lines if line[0] < COMPARED["large"]]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_place_of_a_boot_is_its_time(chromium: Browser, made: Path, server: RecordedRack, width: int) -> None:
    """By the hours that are written below the picture."""
    chromium.open(made, width)
    hours, boot = chromium.run(HOURS)
    (first, left), (last, right) = hours[0], hours[-1]
    assert int(last[:2]) - int(first[:2]) in (4, 5, -19, -20)
    booted = datetime.fromtimestamp(server.end - (MINUTES - AWAY.stop + 1) * 60, UTC)
    begins = (booted.hour - int(first[:2])) % 24 + booted.minute / 60
    span = (int(last[:2]) - int(first[:2])) % 24
    assert boot == pytest.approx(left + (right - left) * begins / span, abs=2)
    assert f"boot {booted:%H:%M}" in chromium.run("return document.querySelector('#node-spark2').innerText")


def test_an_alert_leads_to_its_runbook(chromium: Browser, made: Path) -> None:
    """From the list, from what happened, and from a limit."""
    chromium.open(made, 390, 700)
    places = chromium.run("return [...document.querySelectorAll('nav a')].map(one => one.hash)")
    assert set(places) > {"#alerts", "#events", "#node-spark1", "#unit-qwen", "#switch-crs812", "#runbooks"}
    for place in places:
        assert chromium.run("return document.querySelectorAll(arguments[0]).length", place) == 1, place
    links = "document.querySelectorAll('#alerts a, #events a, figure a')"
    names = chromium.run(f"return [...{links}].map(one => one.hash)")
    assert {"#runbook-MemoryNearFloor", "#runbook-NodeSilent", "#runbook-SwitchHot"} <= set(names)
    for number, name in list({name: number for number, name in enumerate(names)}.items())[:40]:
        chromium.run(f"{links}[arguments[0]].click()", name)
        box = chromium.run("return document.querySelector(':target').getBoundingClientRect().toJSON()")
        assert 0 <= box["top"] < 700, number
        heading = chromium.run("return document.querySelector(':target h3').innerText")
        assert re.fullmatch(rf"#runbook-{heading}", number)


@pytest.mark.parametrize("minute", [0, AFTER_MIDNIGHT[0]])
def test_every_picture_says_its_unit_its_values_and_their_times(
    chromium: Browser, pages: dict[int, Path], minute: int
) -> None:
    chromium.open(pages[minute])
    figures = chromium.run(
        "return [...document.querySelectorAll('figure')].map(one => [one.querySelector('figcaption').innerText,"
        " one.querySelector('.legend').innerText, one.querySelector('svg').ariaLabel])"
    )
    for caption, legend, spoken in figures:
        assert re.search(r"\d", legend), caption
        assert "(" in legend, caption
        assert spoken.startswith(caption.partition(",")[0].split(" Switch")[0].strip()[:20]), (caption, spoken)
    timed = [legend for _, legend, _ in figures if re.search(r"highest .* at (\d\d [A-Z][a-z]+ )?\d\d:\d\d", legend)]
    assert len(timed) > len(figures) / 2

"""The page of `sparkrack accept` in a real browser: it fits, it can be read, and nothing runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.util.provenance import Origin
from sparkrack.accept.model import AcceptReport, ClaimResult, HostReading, MachineResult, Result
from sparkrack.accept.report_html import page
from tests.browser.browser import MISSING, Browser
from tests.browser.page_checks import (
    WIDTHS,
    check_that_it_can_be_read,
    check_that_it_fits,
    check_that_nothing_is_asked_for,
)
from tests.unit.verify.reports import HOSTILE

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


LONG = "endless" * 60


def claim(number: int, result: Result, *, unknown: bool = False) -> ClaimResult:
    read = MachineResult(host="spark1", result=result, evidence=f"{HOSTILE} `{LONG}`", unknown=unknown)
    return ClaimResult(
        id=f"switch.a-group-of-claims-with-a-long-name.claim-{number}",
        level="look",
        claim=f"The monitor reports `status` as one word, {LONG}",
        result=result,
        reason=f"reading `{LONG}` ended with exit 9" if result == "not observed" else "",
        observe=f"`ethtool {LONG}`",
        refutes="another word",
        matters=HOSTILE,
        hosts=(read, read.model_copy(update={"host": "a-node-with-a-very-long-name-0123456789"})),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with claims of each kind, and with a host that gave no answer."""
    origin = Origin(when=datetime(2026, 11, 20, tzinfo=UTC), by="ops@desk", file=f"/{LONG}/rack.yaml", revision=LONG)
    report = AcceptReport(
        rack="spark8",
        origin=origin,
        level="look",
        hosts=(HostReading(host="spark1", answered=True), HostReading(host="spark2", answered=False, reason=HOSTILE)),
        claims=(
            claim(1, "refuted"),
            claim(2, "not observed", unknown=True),
            claim(3, "not observed"),
            claim(4, "observed"),
        ),
    )
    file = tmp_path_factory.mktemp("accept") / "accept.html"
    file.write_text(page(report))
    return file


def test_it_asks_for_nothing_and_runs_nothing(chromium: Browser, made: Path) -> None:
    check_that_nothing_is_asked_for(chromium, made, "spark8: ")
    assert "<script>document.title = 'run'</script>" in chromium.run("return document.body.innerText")


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_the_verdict_is_seen_at_once(chromium: Browser, made: Path, width: int) -> None:
    check_that_it_fits(chromium, made, width)
    box = chromium.run("return document.querySelector('h1').getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < box["bottom"] <= 700


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read(chromium: Browser, made: Path, width: int, dark: bool) -> None:
    check_that_it_can_be_read(chromium, made, width, 50, dark=dark)


def test_each_kind_of_result_is_reached_from_the_head(chromium: Browser, made: Path) -> None:
    chromium.open(made, 390, 700)
    targets = chromium.run("return [...document.querySelectorAll('nav a')].map(one => one.hash.slice(1))")
    assert targets == ["refuted", "unknown", "observed", "not-observed"]
    assert chromium.run("return arguments[0].map(one => document.getElementById(one) !== null)", targets) == [True] * 4

"""The page of `sparkrack verify --html` in a real browser: what it asks for, what is seen, and that nothing runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from core.model import load
from core.verify.report import Report
from core.verify.report_html import Drawing, DrawnLink, page
from tests.browser.browser import MISSING, Browser, pdf_text
from tests.browser.page_checks import (
    COMPARED,
    CONTRAST,
    WIDTHS,
    check_that_it_can_be_read,
    check_that_it_fits,
    check_that_nothing_is_asked_for,
)
from tests.generated import REPOSITORY
from tests.unit.verify.reports import HOSTILE, example, failed, fine, passed, reported, skipped

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

RACK_FILE = REPOSITORY / "examples/rack.yaml"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="900" height="300">
<script>parent.document.title = "run"</script><image xlink:href="http://127.0.0.1:9/a.png" width="9" height="9"/>
<style>@import "http://127.0.0.1:9/a.css";</style><rect width="900" height="300" fill="white"/></svg>
"""
"""A picture that would run and fetch what it can."""
NIGHT = '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300"><rect width="900" height="300"/></svg>'
"""The same on dark ground."""
LINKS = (
    DrawnLink(("spark1/1", "crs812/qsfp56-dd-1-1"), "100G, MTU 9000", "100G, MTU 9000", "fine"),
    DrawnLink(("spark2/1", "crs812/qsfp56-dd-1-3"), "100G", "50G", "mismatch", ("mismatch: is at 50G, wanted 100G",)),
)
SCENES = ("eight", "proven", "hostile")
LIGHTNESS = """
const picture = [...document.querySelectorAll("#picture img")].find(one => one.checkVisibility());
const canvas = Object.assign(document.createElement("canvas"), {width: 90, height: 30});
const context = canvas.getContext("2d");
context.drawImage(picture, 0, 0, 90, 30);
return [...context.getImageData(0, 0, 90, 30).data].reduce((sum, part, at) => sum + (at % 4 < 3 ? part : 0), 0)
  / (90 * 30 * 3 * 255);
"""
"""The mean lightness of the picture that is seen, 0 to 1."""


def scene(name: str) -> Report:
    if name == "eight":
        return example(load(RACK_FILE))
    if name == "proven":
        return reported(fine())
    made = [
        failed("spark1", "memory", f"{HOSTILE} {'endless' * 60}", check=HOSTILE),
        skipped("spark2", "rdma", HOSTILE),
    ]
    return reported([*made, passed("spark2", "memory", notes=(HOSTILE,))])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each scene, on disk."""
    folder = tmp_path_factory.mktemp("pages with ü and spaces")
    for name in SCENES:
        (folder / f"{name}.html").write_text(page(scene(name), Drawing(svg=SVG, dark=NIGHT, links=LINKS)))
    return {name: folder / f"{name}.html" for name in SCENES}


@pytest.mark.parametrize("name", SCENES)
def test_it_asks_for_nothing_and_runs_nothing(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    check_that_nothing_is_asked_for(chromium, pages[name], "spark8:", "two:")


def test_that_would_be_noticed(chromium: Browser, tmp_path: Path) -> None:
    leaky = tmp_path / "leaky.html"
    leaky.write_text("<title>two:</title><script>document.title = 'run'</script><img src='http://127.0.0.1:9/a.png'>")
    chromium.open(leaky)
    assert chromium.run("return document.title") == "run"
    assert [address for address in chromium.requests() if address.startswith("http:")]
    assert chromium.complaints()


def test_hostile_words_are_seen_as_they_are(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["hostile"])
    seen = chromium.run("return document.body.innerText")
    for words in ("<script>document.title = 'run'</script> & \"quoted\" 'twice'", "{{ 7 * 7 }}", "\\u202e"):
        assert seen.count(words) >= 3, words
    assert chromium.run("return document.querySelectorAll('script, [onerror]').length") == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCENES)
def test_it_fits_and_the_verdict_is_seen_at_once(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    check_that_it_fits(chromium, pages[name], width)
    outside = (
        "return [...document.querySelectorAll('header, section')].filter(one => one.scrollWidth > one.clientWidth)"
    )
    assert chromium.run(f"{outside}.map(one => one.id)") == []
    box = chromium.run("return document.querySelector('#verdict h1').getBoundingClientRect().toJSON()")
    assert box["top"] >= 0
    assert box["bottom"] <= 700
    assert box["width"] > 100
    image = "const one = document.querySelector('#picture img');"
    sizes = chromium.run(f"{image} return [one.naturalWidth, one.clientWidth, one.clientHeight]")
    assert sizes[0] == 900
    assert min(sizes) > 80


def test_a_failed_check_leads_to_its_words(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["eight"], 390, 700)
    links = "document.querySelectorAll('#checks td a')"
    assert chromium.run(f"return {links}.length") == 4
    for number, words in enumerate(("swap is on", "cannot be asked", "stale ConnectX-7", "all-reduce of 64")):
        chromium.run(f"{links}[{number}].click()")
        chromium.run("document.documentElement.getBoundingClientRect()")  # the page is laid out by then
        box = chromium.run("return document.querySelector(':target').getBoundingClientRect().toJSON()")
        assert 0 <= box["top"] < 700, words
        assert words in chromium.run("return document.querySelector(':target').innerText")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read(chromium: Browser, pages: dict[str, Path], name: str, width: int, dark: bool) -> None:
    check_that_it_can_be_read(chromium, pages[name], width, 80, dark=dark)


def test_printed_on_paper_it_is_dark_on_white(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["eight"], dark=True)
    scheme = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    try:
        assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not [text for text in chromium.run(CONTRAST) if text[0] < COMPARED[text[1]]]
        assert chromium.run(LIGHTNESS) > 0.9, "the picture too"
    finally:
        chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("name", SCENES)
def test_every_check_is_in_the_page_and_the_bad_ones_are_seen(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    chromium.open(pages[name])
    rows = chromium.run(
        "return [...document.querySelectorAll('[data-check]')]"
        ".map(one => [one.dataset.check, one.textContent.replace(/\\s+/g, ' '), one.checkVisibility()])"
    )
    checks = scene(name).checks
    assert sorted(row[0] for row in rows) == sorted(one.check for one in checks)
    seen = [text for _, text, visible in rows if visible]
    bad = [one for one in checks if one.verdict in ("failed", "unknown")]
    assert sum("failed:" in text or "unknown:" in text for text in seen) == len(bad)
    assert all(any(" ".join(one.reason.split()) in text for text in seen) for one in bad)
    assert len(seen) < 12, "what passed is there, and closed"


def test_the_picture_is_dark_where_the_page_is(chromium: Browser, pages: dict[str, Path]) -> None:
    lightness = []
    for dark in (False, True):
        chromium.open(pages["eight"], dark=dark)
        lightness.append(chromium.run(LIGHTNESS))
    assert lightness[0] > 0.9
    assert lightness[1] < 0.2


def test_paper_has_every_check(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["eight"], dark=True)
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert chromium.run("return document.querySelectorAll('#list details:not([open])').length") > 10
    text = pdf_text(chromium.printed())
    checks = text[text.index("All checks") : text.index("The rack, declared and actual")]
    for verdict, number in Counter(one.verdict for one in scene("eight").checks).items():
        assert checks.count(f"{verdict}:") == number
    assert "mismatch: is at 50G, wanted 100G" in text
    assert "What this project could not try on hardware" in text
    assert text.rstrip().endswith(", switch"), "the last line of the page"

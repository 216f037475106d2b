"""What every page of the project must be in a real browser: it asks for nothing, it fits, and it can be read."""

from __future__ import annotations

from pathlib import Path

from tests.browser.browser import Browser

WIDTHS = (1280, 390, 360)
"""Widths of a desktop and of two telephones (CSS pixels)."""
COMPARED = {"text": 4.5, "large": 3.0}
"""The least contrast of WCAG 2.1, level AA, by size of the letters."""

CONTRAST = """
const channel = part => part <= 10 ? part / 3294 : Math.pow((part / 255 + 0.055) / 1.055, 2.4);
const light = colour => 0.2126 * channel(colour[0]) + 0.7152 * channel(colour[1]) + 0.0722 * channel(colour[2]);
const parts = text => (text.match(/[0-9.]+/g) || []).map(Number);
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *")]
  .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .filter(element => element.checkVisibility())
  .map(element => {
    const style = getComputedStyle(element);
    const pair = [light(parts(style.color)), light(ground(element))].sort((one, other) => other - one);
    const size = parseFloat(style.fontSize), bold = parseInt(style.fontWeight) >= 700;
    return [(pair[0] + 0.05) / (pair[1] + 0.05), size >= 24 || bold && size >= 18.66 ? "large" : "text",
            element.tagName + ": " + element.textContent.trim().slice(0, 40)];
  });
"""
"""Every element that shows text itself: its contrast, how large it is, and what it says."""


def check_that_nothing_is_asked_for(chromium: Browser, file: Path, *titles: str) -> None:
    """Open a page: it fetches nothing, no script has changed its title, and the browser complains of nothing."""
    chromium.complaints()
    chromium.open(file)
    assert chromium.run("return document.readyState") == "complete"
    asked = chromium.requests()
    assert file.as_uri() in asked
    assert not [address for address in asked if not address.startswith(("file://", "data:"))]
    assert chromium.run("return document.title").startswith(titles), "a script has run"
    assert chromium.complaints() == []


def check_that_it_fits(chromium: Browser, file: Path, width: int) -> None:
    """Open a page at a width: nothing stands out of it or of the element that holds it, pictures apart."""
    chromium.open(file, width, 700)
    assert chromium.run("return window.innerWidth") == width
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    inside = "return [...document.querySelectorAll('body *')].filter(one => one.clientWidth && !one.closest('svg'))"
    wide = ".filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.outerHTML.slice(0, 200))"
    assert chromium.run(f"{inside}{wide}") == []


def check_that_it_can_be_read(chromium: Browser, file: Path, width: int, texts: int, *, dark: bool) -> None:
    """Open a page, with all that is folded: its ground is as asked, and more than `texts` texts have contrast."""
    chromium.open(file, width, dark=dark)
    chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    ground = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark, ground
    found = chromium.run(CONTRAST)
    assert len(found) > texts
    assert not [text for text in found if text[0] < COMPARED[text[1]]]

"""A real browser that looks at a page: Chromium without a window, driven over WebDriver."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DRIVER, PROGRAM, LIBRARY = "chromedriver", "chromium", "selenium"
MISSING = [name for name in (DRIVER, PROGRAM) if not shutil.which(name)] + [LIBRARY] * (find_spec(LIBRARY) is None)
"""Missing programs; Debian has them in the packages chromium and chromium-driver, Ubuntu has neither."""


class Browser:
    """One browser with one tab."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Show a file in a window of this size (CSS pixels), and forget what was asked for until now."""
        self.requests()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(page.as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """Return the result of a script that runs in the page, including its `return`."""
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """Every address that was asked for since this was called last."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return the browser's console: errors, and violations of the page's own policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def printed(self) -> bytes:
        """Return the page as PDF, as Chromium prints it by default: without grounds."""
        return b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write what is seen as PNG; `whole`: the page to its end and not only the window."""
        if whole:
            height = self.run("return document.documentElement.scrollHeight")
            width = self.run("return window.innerWidth")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        file.parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(file)), f"{file} could not be written"


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a profile: no updates, no reports to its vendor."""
    webdriver: Any = import_module("selenium.webdriver")
    os.environ["SE_AVOID_STATS"] = "true"
    with TemporaryDirectory(prefix="sparkrack-browser-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which(PROGRAM) or PROGRAM
        for word in (
            *("headless=new", "disable-gpu", "no-first-run", "hide-scrollbars"),
            *(("no-sandbox",) if os.geteuid() == 0 else ()),  # root cannot have one
            *("disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"),
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{word}")
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        # Its path is given, so selenium does not look for one elsewhere.
        service = webdriver.ChromeService(executable_path=shutil.which(DRIVER))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.get("about:blank")  # the page for new tabs asks for much of its own
            yield Browser(driver)
        finally:
            driver.quit()


def pdf_text(data: bytes) -> str:
    """Return the text of a PDF that Chromium wrote, page after page; other programs write other PDFs."""
    objects = {int(m[1]): m[2] for m in re.finditer(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", data, re.DOTALL)}

    def stream(number: bytes) -> str:
        head, _, rest = objects[int(number)].partition(b"stream\n")
        body = rest.rpartition(b"\nendstream")[0]
        return (zlib.decompress(body) if b"FlateDecode" in head else body).decode("latin-1")

    fonts: dict[str, dict[int, str]] = {}
    for number, content in objects.items():
        if found := re.search(rb"/ToUnicode (\d+) 0 R", content):
            letters = fonts[str(number)] = {}
            text = stream(found[1])
            for one, sign in re.findall(r"^<(\w+)> <(\w+)>$", text.partition("endcodespacerange")[2], re.MULTILINE):
                letters[int(one, 16)] = bytes.fromhex(sign).decode("utf-16-be")
            for first, last, sign in re.findall(r"^<(\w+)> <(\w+)> <(\w+)>$", text, re.MULTILINE):
                for glyph in range(int(first, 16), int(last, 16) + 1):
                    letters[glyph] = chr(int(sign, 16) + glyph - int(first, 16))
    text = ""
    for page in re.findall(rb"/Contents (\d+) 0 R", data):
        font: dict[int, str] = {}
        for name, glyphs in re.findall(r"/F(\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>", stream(page)):
            if name:
                font = fonts.get(name, {})
            text += "".join(font.get(int(glyphs[at : at + 4], 16), "?") for at in range(0, len(glyphs), 4))
        text += "\n"
    return text

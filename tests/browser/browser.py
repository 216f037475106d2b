"""A real browser that looks at a page: Chromium without a window, driven over WebDriver."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DRIVER, PROGRAM, LIBRARY = "chromedriver", "chromium", "selenium"
MISSING = [name for name in (DRIVER, PROGRAM) if not shutil.which(name)] + [LIBRARY] * (find_spec(LIBRARY) is None)
"""What is not installed; Debian has the programs in the packages chromium and chromium-driver, Ubuntu has neither."""


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
        """What a script gives that runs in the page; `return` and all."""
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """Every address that was asked for since this was called last."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the browser's console holds: errors, and what the page's own policy has stopped."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

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
    """A browser that knows nobody: empty profile, no updates, nothing said to its maker."""
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

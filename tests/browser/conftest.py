"""The browser of the tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.browser import Browser, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a file."""
    with browser() as started:
        yield started

"""How a failed check is reported in a line."""

from __future__ import annotations

import pytest

from core.verify.outcomes import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("swap is on\nassert 1 == 0", "swap is on"),
        ("assert 1 == 2", "assert 1 == 2"),
        ("OSError: gone", "OSError: gone"),
        ("", "no reason given"),
        ("\n \n", "no reason given"),
        ("\n\nlate", "late"),
    ],
)
def test_first_line(message: str, line: str) -> None:
    assert first_line(message) == line

"""How a failed check is told in a line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sparkrack.proof.outcome import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("AssertionError: swap is on\nassert 1 == 0", "swap is on"),
        ("assert 1 == 2", "assert 1 == 2"),
        ("OSError: gone", "OSError: gone"),
        ("", "no reason given"),
        ("\n \n", "no reason given"),
        ("\n\nlate", "late"),
    ],
)
def test_first_line(message: str, line: str) -> None:
    assert first_line(SimpleNamespace(reprcrash=SimpleNamespace(message=message))) == line
    assert first_line(message) == line

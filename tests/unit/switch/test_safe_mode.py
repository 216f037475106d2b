from __future__ import annotations

import pytest

from core.routeros.errors import CheckError
from core.routeros.safe_mode import TAKE, free, held, holder
from tests.unit.switch.in_memory_switch import Device


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        ({"enabled": "false"}, "no session"),
        ({"enabled": "true"}, "an unknown user"),
        ({"enabled": "true", "user": "eve"}, "eve"),
        ({"enabled": "yes", "owner": "tty"}, "an unknown user (tty)"),
        ({"enabled": "true", "user": "eve", "owner": "api 10.0.0.9"}, "eve (api 10.0.0.9)"),
    ],
)
def test_who_holds_it(row: dict[str, str], reported: str) -> None:
    assert holder(row) == reported


def test_free_then_ours(device: Device) -> None:
    line = device.line()
    free(line)
    with pytest.raises(CheckError, match=r"not ours any more \(held by no session\)"):
        held(line)
    line.talk(*TAKE)
    held(line)


def test_another_user_holds_it(device: Device) -> None:
    device.safe = {"enabled": "true", "current": "false", "user": "eve", "owner": "api 10.0.0.9"}
    device.tables["/user/active"] += [
        {".id": "*2", "name": "eve", "when": "2026-11-20 10:00:00"},
        {".id": "*3", "name": "eve", "when": "2026-11-20 09:00:00"},
    ]
    line = device.line()
    reported = r"safe mode is held by eve \(api 10\.0\.0\.9\), logged in since 2026-11-20 09:00:00; nothing was written"
    with pytest.raises(CheckError, match=reported):
        free(line)
    device.main.trap = lambda words: words[0] == "/user/active/print"
    with pytest.raises(CheckError, match=r"held by eve \(api 10\.0\.0\.9\); nothing"):
        free(line)


@pytest.mark.parametrize("row", [{}, {"enabled": "perhaps", "current": "perhaps"}, {"current": "no"}])
def test_an_unclear_hold_is_not_a_hold(device: Device, row: dict[str, str]) -> None:
    device.safe = row
    with pytest.raises(CheckError):
        held(device.line())


def test_an_unclear_answer_is_not_free(device: Device) -> None:
    device.safe = {"enabled": "perhaps"}
    with pytest.raises(CheckError, match="enabled is 'perhaps'"):
        free(device.line())

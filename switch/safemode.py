"""RouterOS safe mode: one session holds it, and what is written while it is held is undone when that session
ends without a release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .errors import CheckError, SwitchError
from .menus import ACTIVE, SAFE_MODE, Row, Sentence
from .values import Kind, canonical

# `abort` fails when somebody else holds safe mode; the other words ask, or throw the holder out.
TAKE: Sentence = ("/safe-mode/take", "=on-error=abort")
RELEASE: Sentence = ("/safe-mode/release",)
UNROLL: Sentence = ("/safe-mode/unroll",)


class _Talker(Protocol):
    def talk(self, *words: str) -> Sequence[Row]: ...


def free(line: _Talker) -> None:
    """Nobody holds safe mode; otherwise CheckError says who, since when they are logged in."""
    row = state(line)
    if enabled(row):
        raise CheckError(f"safe mode is held by {holder(row)}{_since(line, row)}; nothing was written")


def held(line: _Talker) -> None:
    """This session holds safe mode. It ends by itself, undoing nothing, when the history overflows."""
    row = state(line)
    if not ours(row):
        raise CheckError(f"safe mode is not ours any more (held by {holder(row)})")


def state(line: _Talker) -> Row:
    """The one row of the menu; CheckError if there is none."""
    rows = line.talk(*SAFE_MODE.sentence())
    if len(rows) != 1:
        raise CheckError(f"{SAFE_MODE.path} should have one row and has {len(rows)}")
    return rows[0]


def enabled(row: Row) -> bool:
    """Whether anybody holds it."""
    return _flag(row, "enabled")


def ours(row: Row) -> bool:
    """Whether the session that read the row holds it."""
    return _flag(row, "current")


def holder(row: Row) -> str:
    """Who holds safe mode by a row of its menu: "admin (api 10.0.0.9)"."""
    if not enabled(row):
        return "nobody"
    user, owner = row.get("user", ""), row.get("owner", "")
    return f"{user or 'somebody'} ({owner})" if owner else user or "somebody"


def _since(line: _Talker, row: Row) -> str:
    """The menu does not tell when it was taken; when its holder logged in is the nearest that is told."""
    try:
        sessions = line.talk(*ACTIVE.sentence())
    except SwitchError:
        return ""
    times = [session.get("when", "") for session in sessions if session.get("name") == row.get("user")]
    known = sorted(time for time in times if time)
    return f", logged in since {known[0]}" if known else ""


def _flag(row: Row, name: str) -> bool:
    try:
        return canonical(Kind.FLAG, row.get(name, "no")) == "yes"
    except ValueError:
        raise CheckError(f"{SAFE_MODE.path} {name} is {row[name]!r}") from None

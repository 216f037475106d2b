"""RouterOS safe mode: one session holds it, and what is written while it is held is undone when that session
ends without a release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from core.routeros.errors import CheckError, SwitchError
from core.routeros.menus import ACTIVE, SAFE_MODE, Row, Sentence
from core.routeros.values import ValueKind, canonical

# `abort` fails when another session holds safe mode; the other words ask, or remove the holder.
# claim: switch.safe-mode.api
TAKE: Sentence = ("/safe-mode/take", "=on-error=abort")
RELEASE: Sentence = ("/safe-mode/release",)
UNROLL: Sentence = ("/safe-mode/unroll",)


class _Talker(Protocol):
    def talk(self, *words: str) -> Sequence[Row]: ...


def free(line: _Talker) -> None:
    """Require that no session holds safe mode; otherwise raise CheckError with the holder and its login time."""
    row = state(line)
    if enabled(row):
        raise CheckError(f"safe mode is held by {holder(row)}{_login_time(line, row)}; nothing was written")


def held(line: _Talker) -> None:
    """This session holds safe mode. It ends by itself, undoing nothing, when the history overflows."""
    row = state(line)
    if ours(row):
        return
    if enabled(row):
        raise CheckError(f"safe mode is not ours any more (held by {holder(row)})")
    raise CheckError(
        "safe mode is not ours any more (held by no session): RouterOS ends it, and undoes nothing, when more than 100 "
        "actions are made under it. A run writes fewer, so another administrator writes at the same time"
        f"{_newest_authors(line)}; let one finish before the other"
    )


def state(line: _Talker) -> Row:
    """Return the only row of the menu; raises CheckError if there is none."""
    rows = line.talk(*SAFE_MODE.sentence())
    if len(rows) != 1:
        raise CheckError(f"{SAFE_MODE.path} should have one row and has {len(rows)}")
    return rows[0]


def enabled(row: Row) -> bool:
    """Return whether any session holds it."""
    return _flag_is_set(row, "enabled")


def ours(row: Row) -> bool:
    """Return whether the session that read the row holds it."""
    return _flag_is_set(row, "current")


def holder(row: Row) -> str:
    """Return the holder of safe mode from a row of its menu: "admin (api 10.0.0.9)"."""
    if not enabled(row):
        return "no session"
    user, owner = row.get("user") or "an unknown user", row.get("owner", "")
    return f"{user} ({owner})" if owner else user


def _newest_authors(line: _Talker) -> str:
    """Return who made the newest actions, in words for a message."""
    try:
        rows = line.talk("/system/history/print", "=.proplist=by")
    except SwitchError:
        return ""
    counts = Counter(row.get("by", "") for row in rows)
    return (
        f" (history: {', '.join(f'{count} of {name}' for name, count in counts.most_common() if name)})" if rows else ""
    )


def _login_time(line: _Talker, row: Row) -> str:
    """Return the login time of the holder: the menu does not report when safe mode was taken."""
    try:
        sessions = line.talk(*ACTIVE.sentence())
    except SwitchError:
        return ""
    times = [session.get("when", "") for session in sessions if session.get("name") == row.get("user")]
    known = sorted(time for time in times if time)
    return f", logged in since {known[0]}" if known else ""


def _flag_is_set(row: Row, name: str) -> bool:
    try:
        return canonical(ValueKind.FLAG, row.get(name, "no")) == "yes"
    except ValueError:
        raise CheckError(f"{SAFE_MODE.path} {name} is {row[name]!r}") from None

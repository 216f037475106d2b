"""Say what an operation will change, and what it has seen: to whoever drives the run, else on the screen."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyinfra import logger
from pyinfra.api.host import Host

from sparkrack.ops.account import Entry, Sort, heard


def tell(host: Host, lines: Iterable[str], sort: Sort = Sort.CHANGE) -> None:
    """Changes that are no file: one line each, as `name: old -> new`. Printed when pyinfra was called with --diff."""
    entries = [Entry(sort, line) for line in lines]
    if not heard(host, *entries) and host.state.config.DIFF:
        for entry in entries:
            host.log(f"  {entry.text}")


def restart(host: Host, line: str | None) -> None:
    """Something that is started, restarted or reloaded, with its reason; None: nothing is."""
    tell(host, [line] if line else [], Sort.RESTART)


def show(host: Host, path: str, before: bytes | None, after: bytes | None) -> None:
    """What will become of a file; `after` None: it is removed. Printed when pyinfra was called with --diff."""
    old, new = (
        [] if side is None else side.decode("utf-8", "backslashreplace").splitlines() for side in (before, after)
    )
    verb = "create" if before is None else "remove" if after is None else "modify"
    entry = Entry(Sort.FILE, f"{verb} {path}", tuple(difflib.unified_diff(old, new, lineterm="", n=1))[2:])
    if not heard(host, entry) and host.state.config.DIFF:
        host.log(f"Will {entry.text}")
        for line in entry.diff:
            host.log(f"  {line}")


def warn(host: Host, line: str, sort: Sort = Sort.NOTE) -> None:
    """Something that no run changes and that a person should know; printed in every run."""
    if not heard(host, Entry(sort, line)):
        host.log_styled(line, fg="yellow", log_func=logger.warning)

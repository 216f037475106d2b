"""Say what an operation will change, and what it has seen: to whoever drives the run, else on the screen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pyinfra import logger
from pyinfra.api.host import Host

from sparkrack.fleet.errors import printable
from sparkrack.ops.account import Entry, Sort, heard

_KEY = r"[\w.-]*(?:pass(?:word|wd|phrase)?|secret|token|credentials?|cred|psk)2?"
_HIDDEN = (
    # A mount option. Of a password nothing is left, commas included: it may hold some.
    re.compile(rf"((?<![\w.-]){_KEY}=)\S+", re.IGNORECASE),
    re.compile(r"((?<=[\s,])user(?:name)?=)[^\s,]+"),
    # A setting as YAML, JSON and INI files have it.
    re.compile(rf"((?<![\w.-]){_KEY}(?:[\"']\s*:\s*|\s*:\s+|\s+=\s*)).*\S", re.IGNORECASE),
    re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)"),
)
"""What stands before values that are secrets or lead to one, and the values."""


def tell(host: Host, lines: Iterable[str], sort: Sort = Sort.CHANGE) -> None:
    """Changes that are no file: one line each, as `name: old -> new`. Printed when pyinfra was called with --diff."""
    entries = [Entry(sort, line) for line in lines]
    if not heard(host, *entries) and host.state.config.DIFF:
        for entry in entries:
            host.log(f"  {printable(entry.text)}")


def restart(host: Host, line: str | None) -> None:
    """Something that is started, restarted or reloaded, with its reason; None: nothing is."""
    tell(host, [line] if line else [], Sort.RESTART)


def show(host: Host, path: str, before: bytes | None, after: bytes | None) -> None:
    """What will become of a file; `after` None: it is removed. Printed when pyinfra was called with --diff.

    Only lines that change, since the lines beside them may be somebody's secrets; of those, values that look like
    secrets are hidden.
    """
    old, new = (
        [] if side is None else side.decode("utf-8", "backslashreplace").splitlines() for side in (before, after)
    )
    verb = "create" if before is None else "remove" if after is None else "modify"
    diff = tuple(map(masked, difflib.unified_diff(old, new, lineterm="", n=0)))[2:]
    entry = Entry(Sort.FILE, f"{verb} {path}", diff)
    if not heard(host, entry) and host.state.config.DIFF:
        host.log(f"Will {printable(entry.text)}")
        for line in entry.diff:
            host.log(f"  {printable(line)}")


def masked(line: str) -> str:
    """A line of a file without the values of mount options and settings that are secrets or lead to one."""
    for hidden in _HIDDEN:
        line = hidden.sub(r"\1***", line)
    return line


def warn(host: Host, line: str, sort: Sort = Sort.NOTE) -> None:
    """Something that no run changes and that a person should know; printed in every run."""
    if not heard(host, Entry(sort, line)):
        host.log_styled(printable(line), fg="yellow", log_func=logger.warning)

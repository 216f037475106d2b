"""Report what an operation will change and what it has read: to what drives the run, else on the screen."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pyinfra import logger
from pyinfra.api.host import Host

from core.model.errors import printable
from core.ops.events import emit
from core.util.event import Action, Event, EventKind
from core.util.managed_file import ManagedFile
from core.util.scrub import mask_settings


def announce_change(host: Host, events: Iterable[Event]) -> None:
    """Report changes, differences of files among them. Printed when pyinfra was called with --diff."""
    for event in emit(host, *events):
        if host.state.config.DIFF:
            host.log(f"{'Will' if event.kind is EventKind.FILE else ' '} {printable(event.message)}")
            for line in event.diff:
                host.log(f"  {printable(line)}")


def announce_diff(host: Host, path: str, before: bytes | None, after: bytes | None) -> None:
    """Report what will become of a file; `after` None: it is removed."""
    announce_change(host, [file_diff(path, before, after)])


def file_diff(path: str, before: bytes | None, after: bytes | None) -> Event:
    """Return what will become of a file; `before` None: there is none, `after` None: it is removed.

    Only lines that change, since the lines beside them may be secrets of others; of those, values that look like
    secrets are hidden.
    """
    old, new = (
        [] if side is None else side.decode("utf-8", "backslashreplace").splitlines() for side in (before, after)
    )
    action = Action.CREATE if before is None else Action.REMOVE if after is None else Action.MODIFY
    diff = tuple(map(mask_settings, difflib.unified_diff(old, new, lineterm="", n=0)))[2:]
    return Event(EventKind.FILE, path=path, action=action, diff=diff)


def managed_file_change(file: ManagedFile, before: bytes | None) -> Event:
    """Return what will become of a managed file; `before`: its actual content, None for missing."""
    if before == file.content:
        return Event(EventKind.CHANGE, path=file.path, action=Action.PERMISSIONS)
    return file_diff(file.path, before, file.content)


def managed_file_changes(
    files: Iterable[ManagedFile], before: Mapping[str, bytes | None]
) -> tuple[tuple[ManagedFile, Event], ...]:
    """Return each of these files with what will become of it; `before`: the actual contents by path."""
    return tuple((file, managed_file_change(file, before[file.path])) for file in files)


def announce_warning(host: Host, warning: str | Event, kind: EventKind = EventKind.NOTE) -> None:
    """Report a state that no run changes and that the operator should know; printed in every run."""
    for event in emit(host, Event(kind, detail=warning) if isinstance(warning, str) else warning):
        host.log_styled(printable(event.labelled), fg="yellow", log_func=logger.warning)

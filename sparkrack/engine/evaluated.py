"""A session of pyinfra for one command: selected, connected, evaluated."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyinfra.api.exceptions import PyinfraError

from core.model import Rack, load
from core.model.selection import Selection, select
from core.util.command_error import CommandError
from core.util.progress import NO_PROGRESS, ProgressObserver
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.plan import Plan
from sparkrack.engine.session import RunSession


@dataclass(frozen=True)
class EvaluatedRun:
    """A session and what a run of it would do."""

    session: RunSession
    plan: Plan


def selected(file: Path, limit: Sequence[str], exclude: Sequence[str], only: Sequence[str]) -> tuple[Rack, Selection]:
    """The rack, and what the options leave of it. Raises SelectionError when that is nothing."""
    rack = load(file)
    return rack, select(rack, limit, exclude, only)


@contextmanager
def open_run(
    rack: Rack,
    file: Path,
    selection: Selection,
    handler: logging.Handler | None = None,
    progress: ProgressObserver = NO_PROGRESS,
) -> Iterator[RunSession]:
    """Open a session for the selection, not connected yet; pyinfra's log goes to `handler`, how far it is to
    `progress`. Raises CommandError when pyinfra cannot continue.
    """
    try:
        session = RunSession(rack, file, selection, handler, progress)
        try:
            yield session
        finally:
            session.close()
    except PyinfraError as fault:
        raise CommandError(str(fault)) from None


def planned(session: RunSession, file: Path) -> Plan:
    """Connect to what is selected and evaluate it."""
    session.connect()
    session.prepare()
    return evaluate(session, file)


@contextmanager
def evaluated(
    rack: Rack, file: Path, selection: Selection, progress: ProgressObserver = NO_PROGRESS, *, no_nodes: bool = False
) -> Iterator[EvaluatedRun]:
    """Connect to the selection and evaluate it; how far it is goes to `progress`. `no_nodes`: see `RunSession`. Raises
    CommandError when pyinfra cannot continue.
    """
    with open_run(rack, file, selection, progress=progress) as session:
        session.no_nodes(no_nodes)
        yield EvaluatedRun(session, planned(session, file))

"""A session of pyinfra for one command: selected, connected, evaluated."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from pyinfra.api.exceptions import PyinfraError

from sparkrack.fleet import Rack, load
from sparkrack.fleet.selection import Selection, SelectionError, select
from sparkrack.run.evaluate import evaluate
from sparkrack.run.plan import Plan
from sparkrack.run.session import Session


@dataclass(frozen=True)
class Evaluated:
    """A session and what a run of it would do."""

    session: Session
    plan: Plan


def selected(file: Path, limit: Sequence[str], exclude: Sequence[str], only: Sequence[str]) -> tuple[Rack, Selection]:
    """The rack, and what the options leave of it. Raises ClickException when that is nothing."""
    rack = load(file)
    try:
        return rack, select(rack, limit, exclude, only)
    except SelectionError as fault:
        raise click.ClickException(str(fault)) from None


@contextmanager
def opened(rack: Rack, file: Path, selection: Selection, handler: logging.Handler | None = None) -> Iterator[Session]:
    """A session about what is selected, not connected yet; what pyinfra logs goes to `handler`. Raises ClickException
    when pyinfra cannot go on."""
    try:
        session = Session(rack, file, selection, handler)
        try:
            yield session
        finally:
            session.close()
    except PyinfraError as fault:
        raise click.ClickException(str(fault)) from None


def planned(session: Session, file: Path) -> Plan:
    """Connect to what is selected and evaluate it."""
    session.connect()
    session.prepare()
    return evaluate(session, file)


@contextmanager
def evaluated(
    rack: Rack, file: Path, selection: Selection, handler: logging.Handler | None = None
) -> Iterator[Evaluated]:
    """Connect to what is selected and evaluate it; what pyinfra logs goes to `handler`. Raises ClickException when
    pyinfra cannot go on."""
    with opened(rack, file, selection, handler) as session:
        yield Evaluated(session, planned(session, file))

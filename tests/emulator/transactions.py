"""Transactions against the emulated switch without pyinfra around them: a hundred of them take a minute."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from pydantic import SecretStr

from core.model import Rack, load
from core.routeros.api import ApiSession
from core.routeros.reading import SwitchReading
from core.routeros.session import SessionConnection
from switch.executor import TransactionOutcome, execute
from switch.target_state import DeclaredTarget, TargetState
from switch.transaction import Step, Transaction
from tests.emulator import reference
from tests.emulator.emulator_process import USER, Crs812Process

SETTLE = 10.0

RELEASES = ("7.23.8 (long-term)", "7.24.4 (stable)", "7.25.2 (stable)")
"""The releases that transactions are proven on: one from before 7.24, one that does not run every schedule, and the
newest.
"""


def on_releases(
    cases: Iterable[tuple[object, ...]], first: Collection[tuple[object, ...]], begin: int = 0
) -> list[ParameterSet]:
    """Parameters of a test: the release, then the case. Each case takes one of the releases in turn, from the number
    `begin` on, and is of the first tier with it if it is one of `first`; with the other releases it is a soak test that
    no part of `make test` has.
    """
    return [
        pytest.param(
            release,
            *case,
            marks=pytest.mark.soak(sampled=False)
            if turn % len(RELEASES) != number
            else ()
            if case in first
            else pytest.mark.soak,
        )
        for turn, case in enumerate(cases, start=begin)
        for number, release in enumerate(RELEASES)
    ]


READER_PASSWORD = "TEST_READER_PASSWORD"
WHOLE: Mapping[str, Any] = {
    "lossless": "roce",
    "management": ["127.0.0.0/8"],
    "reader": {"password": {"env": READER_PASSWORD}},
    "time_zone": "Europe/Berlin",
    "ntp": ["10.77.0.1"],
    "dns": ["10.77.0.1"],
    "lldp": True,
    "syslog": "head",
    "snmp": False,
}
"""Every key about the switch that there is."""


@dataclass
class Operator:
    """An operator with a rack file and a session to the emulated switch. `switch` are keys that replace the rack's,
    `fabric` those of its fabric.
    """

    folder: Path
    emulator: Crs812Process
    switch: Mapping[str, Any] = field(default_factory=dict)
    fabric: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 20.0
    reported: list[str] = field(default_factory=list)

    def rack(self) -> Rack:
        """The reference rack, eight nodes on two cages."""
        os.environ.setdefault(READER_PASSWORD, "a-reader's-own-long-password")
        path = self.folder / "rack.yaml"
        reference.write(path, self.emulator, self.switch, self.fabric)
        return load(path)

    def goal(self) -> DeclaredTarget:
        """Return the declared target of the rack file."""
        rack = self.rack()
        return DeclaredTarget(rack, rack.switches["crs812"])

    def open(self) -> ApiSession:
        """A session of the operator's user."""
        return ApiSession(
            "127.0.0.1",
            self.emulator.tls_port,
            tls=self.emulator.fingerprint,
            user=USER,
            password=SecretStr(self.emulator.password),
            timeout=self.timeout,
        )

    @contextmanager
    def line(self) -> Iterator[SessionConnection]:
        """Open a connection like that of a run."""
        line = SessionConnection(self.open, self.reported.append)
        line.connect()
        try:
            yield line
        finally:
            line.close()

    def run(
        self, goal: TargetState, show: Callable[[Step], None] = lambda _step: None, **options: Any
    ) -> tuple[TransactionOutcome, Transaction]:
        """One run: read, compare, carry out. It writes only if something differs."""
        with self.line() as line:
            before = goal.read(lambda sentence: line.talk(*sentence))
            options = {"settle": SETTLE} | options
            transaction = Transaction("sparkrack-undo-20260101T000000-0001", goal, before, goal.plan(before), **options)
            return execute(transaction, line, show, timeout=5.0), transaction

    def reading(self, goal: TargetState) -> SwitchReading:
        """Return the current reading of the switch, in a separate session."""
        with self.open() as session:
            return goal.read(lambda sentence: session.talk(*sentence))

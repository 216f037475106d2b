"""Transactions against the emulated switch without pyinfra around them: a hundred of them take a minute."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from sparkrack.fleet import Rack, load
from switch.api import Session
from switch.conduct import Ended, conduct
from switch.goal import Declared, Goal
from switch.line import SessionLine
from switch.reading import Reading
from switch.transaction import Step, Transaction
from tests.emulator import reference
from tests.emulator.peer import USER, Crs812Process

SETTLE = 10.0

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
    """Somebody with a rack file and a session to the emulated switch. `switch` are keys that replace the
    rack's, `fabric` those of its fabric."""

    folder: Path
    emulator: Crs812Process
    switch: Mapping[str, Any] = field(default_factory=dict)
    fabric: Mapping[str, Any] = field(default_factory=dict)
    patience: float = 20.0
    said: list[str] = field(default_factory=list)

    def rack(self) -> Rack:
        """The reference rack, eight nodes on two cages."""
        os.environ.setdefault(READER_PASSWORD, "a-reader's-own-long-password")
        path = self.folder / "rack.yaml"
        reference.write(path, self.emulator, self.switch, self.fabric)
        return load(path)

    def goal(self) -> Declared:
        """What the rack file declares."""
        rack = self.rack()
        return Declared(rack, rack.switches["crs812"])

    def open(self) -> Session:
        """A session of the operator's user."""
        return Session(
            "127.0.0.1",
            self.emulator.tls_port,
            tls=self.emulator.fingerprint,
            user=USER,
            password=SecretStr(self.emulator.password),
            patience=self.patience,
        )

    @contextmanager
    def line(self) -> Iterator[SessionLine]:
        """A line as a run has it."""
        line = SessionLine(self.open, self.said.append)
        line.connect()
        try:
            yield line
        finally:
            line.close()

    def run(
        self, goal: Goal, show: Callable[[Step], None] = lambda _step: None, **options: Any
    ) -> tuple[Ended, Transaction]:
        """One run: read, compare, carry out. It writes only if something differs."""
        with self.line() as line:
            before = goal.read(lambda sentence: line.talk(*sentence))
            options = {"settle": SETTLE} | options
            transaction = Transaction("sparkrack-undo-test", goal, before, goal.plan(before), **options)
            return conduct(transaction, line, show, patience=5.0), transaction

    def reading(self, goal: Goal) -> Reading:
        """What the switch reads now, in a session of its own."""
        with self.open() as session:
            return goal.read(lambda sentence: session.talk(*sentence))

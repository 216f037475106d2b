"""A small run: hosts with the behaviour that a test sets, and operations that send them one word for each command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gevent
from pyinfra.api.command import StringCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from core.ops import announce, refusals
from core.util.event import Event, EventKind, value_change
from sparkrack.engine.execute import Executor, OperationResult


class LostError(EOFError):
    """Error with paramiko's text for a lost connection."""


@dataclass
class Noted:
    """Recorded events, in order."""

    events: list[tuple[str, ...]] = field(default_factory=list)
    steps: list[OperationResult] = field(default_factory=list)
    reported: list[tuple[str, Event]] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)

    def __copy__(self) -> Noted:
        return self

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        self.events.append(("begins", role, sentence, f"{number}/{total}"))

    def ended(self, step: OperationResult) -> None:
        self.steps.append(step)

    def heard(self, machine: str, entry: Event) -> None:
        self.reported.append((machine, entry))

    def broke(self, machine: str, why: str) -> None:
        self.broken.append((machine, why))

    @property
    def results(self) -> dict[str, str]:
        return {f"{step.machine} {step.title}": step.result for step in self.steps}

    @property
    def sent(self) -> list[tuple[str, ...]]:
        return [event[1:] for event in self.events if event[0] == "sent"]


class Hand(FakeConnector):
    """Executes one word. `wait`: takes a moment; `hang`: never ends; `fail`: fails; `lost`: the connection ends."""

    def connect(self) -> None:
        if self.host.data.get("away"):
            raise ConnectError("No route to host")

    def disconnect(self) -> None:
        self.host.data.noted.events.append(("disconnected", self.host.data.node.name))

    def run_shell_command(self, command: Any, *_: Any, **_arguments: Any) -> tuple[bool, CommandOutput]:
        word, name, noted = command.get_raw_value(), self.host.data.node.name, self.host.data.noted
        noted.events.append(("sent", name, word))
        if word in ("wait", "hang"):
            gevent.sleep(0.02 if word == "wait" else 60)
        if word == "lost":
            raise LostError
        noted.events.append(("did", name, word))
        return word != "fail", CommandOutput([OutputLine("stderr", "it failed")] if word == "fail" else [])


def change_in(text: str) -> Event:
    """The event of `SUBJECT: OLD -> NEW`, or of any other words."""
    match = re.fullmatch(r"(.*): (.*) -> (.*)", text)
    return value_change(*match.groups()) if match else Event(EventKind.CHANGE, detail=text)


@operation()
def send(words: Mapping[str, Sequence[str]]) -> Any:
    """Send each host its words. `bug`, `refuse` and `say CHANGE` happen in the operation itself; after `undo` its end
    is recorded.
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    undo = False
    try:
        for word in words.get(host.data.node.name, ()):
            if word == "bug":
                raise ZeroDivisionError("no one foresaw this")
            if word == "refuse":
                yield refusals.refuse(host, "it is in the way")
                return
            if word.startswith("say "):
                announce.announce_change(host, [change_in(word.removeprefix("say "))])
                continue
            undo = undo or word == "undo"
            yield StringCommand(word)
            undo = undo and word != "keep"
    finally:
        if undo and host.state.is_executing:
            gevent.sleep(0.02)  # as a command over a connection, it lets others go on
            host.data.noted.events.append(("undone", host.data.node.name))


class Small:
    """A session of machines by name, each operation as (name, words for each machine, whether serial)."""

    def __init__(self, names: Sequence[str], *steps: tuple[str, Mapping[str, Sequence[str]], bool]) -> None:
        self.noted = Noted()
        hosts = [(f"@fake/{name}", {"node": SimpleNamespace(name=name), "noted": self.noted}) for name in names]
        inventory = Inventory((hosts, {}))  # type: ignore[no-untyped-call]
        for host in inventory:
            host.connector_cls = Hand
        self.state = State(inventory, Config(), check_for_changes=False)  # type: ignore[no-untyped-call]
        connect_all(self.state)
        self.active = list(inventory)

        def deploy() -> None:
            for name, words, serial in steps:
                send(name=name, words=words, _serial=serial)

        add_deploy(self.state, deploy)
        self.carrying = Executor(self, self)  # type: ignore[arg-type]

    def message(self, machine: str, entry: Event) -> None:
        self.noted.heard(machine, entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.noted, name)

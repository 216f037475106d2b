"""A host that is stopped: what is reported, once in each stage of a run, and what the operation yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyinfra import logger

from core.ops import events, refusals
from core.ops.shell import sudo_script
from core.util.event import Event, EventKind


@dataclass(eq=False)
class State:
    """A run."""

    is_executing: bool = False
    failed_hosts: set[Any] = field(default_factory=set)


@dataclass(eq=False)
class Host:
    """A host of it. `printed`: what pyinfra would print, with its colour and level."""

    state: State = field(default_factory=State)
    current_op_hash: str = ""
    printed: list[tuple[str, str, object]] = field(default_factory=list)

    def log_styled(self, text: str, *, fg: str, log_func: object) -> None:
        self.printed.append((text, fg, log_func))


def test_a_reason_is_printed_once_in_each_stage_and_the_host_has_failed() -> None:
    host: Any = Host()
    commands = [refusals.refuse(host, "one\x1b[2J", "two"), refusals.refuse(host, "two", "three", untouched="all")]
    texts = [text for text, _, _ in host.printed]
    shown = [Event(EventKind.REFUSED, detail=text).labelled for text in ("one\\x1b[2J", "two", "three; all")]
    assert texts == shown
    assert {(fg, log) for _, fg, log in host.printed} == {("red", logger.error)}
    assert host.state.failed_hosts == {host}
    assert all(refusals.is_refusal(command) for command in commands)
    assert not refusals.refused_in_preview(host)
    host.state.is_executing = True
    assert refusals.refused_in_preview(host)
    host.printed.clear()
    for _ in range(2):
        refusals.refuse(host, "two")
    assert [text for text, _, _ in host.printed] == [shown[1]]


def test_while_a_run_executes_the_command_fails_the_host() -> None:
    host: Any = Host(State(is_executing=True))
    command: Any = refusals.fail_unknown(host, ValueError("it is garbled"))
    assert host.state.failed_hosts == set()
    assert command.function(host.state, host) is False
    assert [text for text, _, _ in host.printed] == [
        Event(EventKind.UNKNOWN, detail="it is garbled; nothing was changed").labelled
    ]
    assert not refusals.refused_in_preview(host)


def test_what_a_listener_takes_is_not_printed() -> None:
    host: Any = Host()
    heard: list[tuple[EventKind, str | None]] = []
    events.subscribe(host.state, lambda _, event: heard.append((event.kind, event.detail)))
    refusals.refuse(host, "a", untouched="b")
    refusals.fail_unknown(host, "c", untouched="")
    assert heard == [(EventKind.REFUSED, "a; b"), (EventKind.UNKNOWN, "c")]
    assert host.printed == []


def test_another_command_is_not_a_refusal() -> None:
    assert not refusals.is_refusal(sudo_script("true"))

"""What an operation reports under plain pyinfra: changes with --diff alone, warnings in every run."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra import logger

from core.ops import announce, events
from core.util.event import Action, Event, EventKind
from core.util.managed_file import ManagedFile

OLD, NEW = b"a\nb\n", b"a\nc \xff\x1b[2J\n"


@dataclass(eq=False)
class State:
    """A run that can be referred to weakly."""

    config: SimpleNamespace
    get_op_meta: Any = None


@dataclass(eq=False)
class Host:
    """A host that keeps what is logged, with its colour."""

    state: State
    current_op_hash: str | None = None
    logged: list[tuple[str, str]] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.logged.append((text, ""))

    def log_styled(self, text: str, fg: str, log_func: Any) -> None:
        assert log_func == logger.warning
        self.logged.append((text, fg))


def host(*, diff: bool = False) -> Any:
    return Host(State(config=SimpleNamespace(DIFF=diff)))


def test_with_diff_a_file_is_announced_with_the_lines_that_change() -> None:
    on = host(diff=True)
    announce.announce_diff(on, "/etc/x", OLD, NEW)
    assert [text for text, _ in on.logged] == ["Will modify /etc/x", "  @@ -2 +2 @@", "  -b", r"  +c \xff\x1b[2J"]


def test_with_diff_another_change_is_announced_without_a_verb_of_its_own() -> None:
    on = host(diff=True)
    announce.announce_change(on, [Event(EventKind.CHANGE, subject="vm.swappiness", old="60", new="1")])
    assert on.logged == [("  vm.swappiness: 60 -> 1", "")]


def test_without_diff_a_change_is_not_printed_and_a_warning_is_in_yellow() -> None:
    on = host()
    announce.announce_diff(on, "/etc/x", OLD, NEW)
    announce.announce_warning(on, "a reboot is needed\x1b[2J")
    announce.announce_warning(on, "it is broken", EventKind.BROKEN)
    announce.announce_warning(on, Event(EventKind.UNMANAGED, detail="another"))
    words = [Event(EventKind.NOTE, detail="a reboot is needed\x1b[2J"), Event(EventKind.BROKEN, detail="it is broken")]
    assert on.logged == [
        (r"a reboot is needed\x1b[2J", "yellow"),
        (words[1].labelled, "yellow"),
        (Event(EventKind.UNMANAGED, detail="another").labelled, "yellow"),
    ]


def test_a_listener_takes_every_event_with_the_role_of_the_operation_and_nothing_is_printed() -> None:
    on = host(diff=True)
    on.current_op_hash = "x"
    on.state.get_op_meta = lambda _: SimpleNamespace(names={"memory | Set it up", "memory | Zones"})
    taken: list[tuple[object, Event]] = []
    events.subscribe(on.state, lambda *found: taken.append(found))
    own = Event(EventKind.NOTE, detail="of another role", role="time")
    announce.announce_change(on, [Event(EventKind.CHANGE, subject="x", old="1", new="2"), own])
    assert [(to is on, event.role) for to, event in taken] == [(True, "memory"), (True, "time")]
    assert on.logged == []


@pytest.mark.parametrize(
    ("before", "action"),
    [(None, Action.CREATE), (b"old\n", Action.MODIFY), (b"new\n", Action.PERMISSIONS)],
)
def test_a_managed_file_is_created_modified_or_gets_its_mode(before: bytes | None, action: Action) -> None:
    event = announce.managed_file_change(ManagedFile("/etc/x", b"new\n"), before)
    assert (event.path, event.action) == ("/etc/x", action)
    assert event.kind is (EventKind.CHANGE if action is Action.PERMISSIONS else EventKind.FILE)
    assert ("+new" in event.diff) == (action is not Action.PERMISSIONS)


def test_a_file_that_goes_is_removed() -> None:
    event = announce.file_diff("/etc/x", b"old\n", None)
    assert (event.action, event.diff) == (Action.REMOVE, ("@@ -1 +0,0 @@", "-old"))

"""Events as data: one change, finding or refusal of a host, with its values, and the sentence that shows it. Pure.

Below `core.ops`: a role's desired state makes events, and its verification, which reads that, must not know `core.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What kind of thing is reported. The values stand in JSON reports and never change their meaning."""

    CHANGE = "change"
    """A declared value that differs; a run would change it."""
    FILE = "file"
    """A file that a run would write or remove, with its differences."""
    RESTART = "restart"
    """Something that a run would start, restart or reload, with the reason."""
    EFFECT = "effect"
    """What a change on the switch disturbs."""
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    BROKEN = "broken"
    """Configured as declared, and does not work. No run fixes it."""
    OUTLIER = "outlier"
    """A node is unlike the others."""
    UNMANAGED = "unmanaged"
    """There, and not declared. A run leaves it alone."""
    REFUSED = "refused"
    """Known, and in the way: a run changes nothing of this host."""
    UNKNOWN = "unknown"
    """Could not be read, which is never "in sync": a run changes nothing of this host."""


class Action(StrEnum):
    """What a run does to the subject or the file of an event. The values stand in JSON reports."""

    CREATE = "create"
    MODIFY = "modify"
    REMOVE = "remove"
    SET = "set"
    """A value becomes another."""
    WRITE = "write"
    """A file is written whole; its lines are not compared."""
    REWRITE = "rewrite"
    """The same, of a file that is there."""
    PERMISSIONS = "permissions"
    """Owner and mode of a file are set."""
    MOVE = "move"
    """A file is moved to the backups."""
    RESTORE = "restore"
    """What was there before the first run comes back."""
    ADOPT = "adopt"
    """A file of others is taken over, and kept in the backups."""
    COPY = "copy"
    PULL = "pull"
    NAME = "name"
    RECORD = "record"
    INSTALL = "install"
    HOLD = "hold"
    UNHOLD = "unhold"
    ENABLE = "enable"
    DISABLE = "disable"
    MASK = "mask"
    STOP_AND_MASK = "stop and mask"
    UNMASK = "unmask"
    START = "start"
    STOP = "stop"
    STOP_AND_REMOVE = "stop and remove"
    RESTART = "restart"
    RELOAD = "reload"
    SWAPOFF = "swapoff"
    RELEASE = "release"
    GENERATE = "generate"
    """A key pair is made."""
    ALLOW_LOGIN = "allow login"
    UPDATE_LOGIN = "update login"
    REVOKE_LOGIN = "revoke login"
    JOIN_GROUP = "join group"
    LEAVE_GROUP = "leave group"
    DISARM = "disarm"
    REBOOT = "reboot"
    """The host must be rebooted by its operator; no run does it."""
    UPGRADE = "upgrade"
    """The software of the host must be upgraded by its operator; no run does it."""


_PHRASES = {
    Action.REWRITE: "rewrite {}",
    Action.PERMISSIONS: "{}: owner and mode are put right",
    Action.MOVE: "move {} to the backups",
    Action.ADOPT: "take over {}",
    Action.GENERATE: "make the key pair {}",
    Action.ALLOW_LOGIN: "let {} in",
    Action.UPDATE_LOGIN: "let {} in with its present key and addresses",
    Action.REVOKE_LOGIN: "let {} in no longer",
    Action.JOIN_GROUP: "{} joins group",
    Action.LEAVE_GROUP: "{} leaves group",
    Action.DISARM: "disarm {}, which an interrupted run left: it would undo that run",
    Action.REBOOT: "reboot required",
    Action.UPGRADE: "upgrade required",
}
"""Where verb and subject do not simply follow one another."""
_JOINED = {
    Action.COPY,
    Action.PULL,
    Action.NAME,
    Action.RECORD,
    Action.ALLOW_LOGIN,
    Action.JOIN_GROUP,
    Action.LEAVE_GROUP,
}
"""Kinds whose detail continues the sentence."""
_SIGNS = {Action.CREATE: "+", Action.MODIFY: "~", Action.REMOVE: "-"}


@dataclass(frozen=True)
class FieldValue:
    """One named setting of a subject: its actual and its desired value as they may be shown; None: there is none."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, kw_only=True)
class EventData:
    """The data that an event, and each record of one, has.

    subject: what it is about. old, new: the actual and the desired value of the subject, where it is a value. fields:
    the same of its named settings, where it has some. path: of a file. menu: of a row of the switch, whose name is the
    subject. action: what a run does. detail: any further information, mostly a reason. Values are as they may be
    shown: a secret is hidden by the code that creates the event.
    """

    subject: str | None = None
    old: str | None = None
    new: str | None = None
    fields: tuple[FieldValue, ...] = ()
    path: str | None = None
    menu: str | None = None
    action: Action | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Event(EventData):
    """One thing that an operation reports of a host; `message` shows it as one sentence.

    role: of the operation; empty until it is emitted. diff: lines of a unified diff, when it is about a file.
    """

    kind: EventKind
    role: str = ""
    diff: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The event as one sentence, without its role."""
        return _row_text(self) if self.menu is not None else _format_event(self)

    @property
    def labelled(self) -> str:
        """The same, after its role."""
        return f"{self.role}: {self.message}" if self.role else self.message


def value_change(subject: str, old: object, new: object, detail: str | None = None) -> Event:
    """A value that becomes another; `old` None: there is none."""
    shown = None if old is None else str(old)
    return Event(EventKind.CHANGE, subject=subject, old=shown, new=str(new), action=Action.SET, detail=detail)


def field_change(subject: str, name: str, old: object, new: object, detail: str | None = None) -> Event:
    """A named setting of a subject that becomes another; `old` None: there is none."""
    fields = (FieldValue(name, None if old is None else str(old), str(new)),)
    return Event(EventKind.CHANGE, subject=subject, fields=fields, action=Action.SET, detail=detail)


def acted(action: Action, *subjects: str, detail: str | None = None) -> tuple[Event, ...]:
    """What a run does to each of these."""
    return tuple(Event(EventKind.CHANGE, subject=subject, action=action, detail=detail) for subject in subjects)


def file_acted(action: Action, *paths: str, detail: str | None = None) -> tuple[Event, ...]:
    """What a run does to each of these files, without showing their lines."""
    return tuple(Event(EventKind.CHANGE, path=path, action=action, detail=detail) for path in paths)


def _format_event(event: Event) -> str:
    about = event.subject or event.path or ""
    if event.action in (None, Action.SET):
        head = about
    else:
        head = _PHRASES.get(event.action, f"{event.action} {{}}").replace("{}", about)
    values = ", ".join(f"{field.name} {_shown_value(field.old)} -> {_shown_value(field.new)}" for field in event.fields)
    if event.new is not None:
        values = f"{_shown_value(event.old)} -> {_shown_value(event.new)}"
    if values:
        return f"{head}: {values}" + (f" ({event.detail})" if event.detail else "")
    return (" " if event.action in _JOINED else ": ").join(part for part in (head, event.detail) if part)


def _row_text(event: Event) -> str:
    """A row of the switch. Of one that is added only what it is to hold is shown."""
    sign = _SIGNS.get(event.action) if event.action else None
    head = " ".join(part for part in (sign, event.menu, event.subject) if part)
    fields = ", ".join(
        f"{field.name} {_shown_value(field.new)}"
        if event.action is Action.CREATE
        else f"{field.name} {_shown_value(field.old)} -> {_shown_value(field.new)}"
        for field in event.fields
    )
    return f"{head}: {fields}" if fields else head


def _shown_value(value: str | None) -> str:
    return "(none)" if value is None else value or "(empty)"

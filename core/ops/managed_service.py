"""A systemd service that a role manages: its files, its units, what reads a change, and how it goes. Pure.

One rule for all of them. A mark is set before files are written, and removed once they were read, so that the next run
completes one that died in between; a reboot reads the files itself, and clears a mark in /run. Units are unmasked,
enabled and running; one in a restart loop does not run. Files below /etc/systemd/system are read by systemd.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyinfra.api.command import StringCommand

from core.ops import remote_files
from core.ops.operation import Changeset
from core.ops.shell import quick_script, quote, sudo_script
from core.probes.systemd_units import MARKS, SystemdUnit
from core.util.event import Action, Event, EventKind, FieldValue, acted, file_acted
from core.util.managed_file import FileState, ManagedFile

UNITS = "/etc/systemd/system"
Reason = str | FieldValue
"""Why a unit is started or restarted: in words, or the setting with which it runs."""
_UNREAD = "it has not read its files"


class Reads(Enum):
    """How the units of a service that run get to know a change of its files."""

    RESTART = "restart"
    RELOAD = "reload"
    """They read their files again while they run; a changed unit file restarts them."""
    NOTHING = "nothing"
    """They do not, or systemd does it alone: nothing that runs is restarted."""


@dataclass(frozen=True)
class ServiceChanges:
    """What is announced, and the commands that do it; both empty where there is nothing to do."""

    events: tuple[Event, ...] = ()
    commands: tuple[StringCommand, ...] = ()

    def __add__(self, other: ServiceChanges) -> ServiceChanges:
        return ServiceChanges(self.events + other.events, self.commands + other.commands)

    def changeset(self, in_sync_reason: str, warnings: tuple[Event, ...] = ()) -> Changeset:
        """Return what an operation does that consists of these changes."""
        if not self.events:
            return Changeset(warnings=warnings, in_sync_reason=in_sync_reason)
        return Changeset(warnings=warnings, events=self.events, commands=self.commands)


NO_CHANGES = ServiceChanges()


@dataclass(frozen=True)
class ServiceState:
    """A service as a node has it.

    units: by name, those that its timers start too. files: the files that differ from the desired ones, each with the
    event of its change. there: whether any of its files exists. pending: whether an earlier run wrote files that were
    not read. overrides: drop-ins of others that go to the backups.
    """

    units: Mapping[str, SystemdUnit]
    files: tuple[tuple[ManagedFile, Event], ...] = ()
    there: bool = True
    pending: bool = False
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class ManagedService:
    """A service of a role, the same for every rack.

    name: of its mark, unique on a node; None where what runs shows which files it has read. units: what is enabled and
    runs, in the order of their start. paths: of all its files. reads: how its units get to know a change.
    """

    name: str | None
    units: tuple[str, ...]
    paths: tuple[str, ...]
    reads: Reads = Reads.RESTART
    reload: str = ""
    """Shell text with which its unit reads its files again; empty for `systemctl reload`."""
    restart: str = ""
    """Shell text that restarts its unit; empty for `systemctl restart`."""
    starts: tuple[str, ...] = ()
    """Services of its timers, which run once after each change."""
    static: bool = False
    """Other units start it: there is nothing to enable."""
    at_boot: bool = False
    """It is started at boot alone, and now only for a reason that its role has."""
    waits: bool = False
    """It waits for another node in a restart loop."""
    prepare: str = ""
    """Shell text before its units are started."""
    after: str = ""
    """Shell text after they were started, before the mark goes."""
    leftovers: tuple[str, ...] = field(default=(), kw_only=True)
    """Paths of what it writes itself that go with it."""
    lasting_mark: str = field(default="", kw_only=True)
    """Path of its mark where a reboot must not clear it: its programs do not start while their files are not whole."""

    @property
    def mark(self) -> str:
        """Path of the mark for files that are written and not read; empty for a service without one."""
        return self.lasting_mark or (f"{MARKS}/{self.name}.pending" if self.name else "")

    def set_mark(self) -> tuple[StringCommand, ...]:
        """Return the command that notes that files are about to change, for what changes files of several services."""
        folder = posixpath.dirname(self.mark)
        return (quick_script(f"umask 077; mkdir -p {folder}; : > {self.mark}"),) if self.mark else ()

    def differences(
        self,
        now: ServiceState,
        reasons: Mapping[str, Reason] | None = None,
        install: ServiceChanges = NO_CHANGES,
        also: ServiceChanges = NO_CHANGES,
        *,
        reload_reasons: Mapping[str, Reason] | None = None,
    ) -> ServiceChanges:
        """Return what brings the service to its desired state.

        reasons: why units that run are restarted, or read their files again, although nothing else differs. install:
        brings the package whose unit it is, after the unit files and before the others, since a package starts its
        unit. also: changes of what its units read that are not among the files of `now`, as those of secrets.
        reload_reasons: why units that run read their files again where nothing restarts them.
        """
        outdated = any(now.units[unit].reload for unit in (*self.units, *self.starts))
        new = outdated or now.pending or bool(now.files or now.overrides or install.commands or also.commands)
        restarts = self._plan_restarts(now, also, install, reasons or {}, reload_reasons or {})
        masked = [unit for unit in self.units if now.units[unit].masked]
        disabled = [unit for unit in self.units if not (self.static or now.units[unit].enabled)]
        if not (new or restarts or masked or disabled):
            return NO_CHANGES
        by_systemd = any(_is_unit_file(file.path) for file, _ in now.files) or bool(now.overrides or install.commands)
        reload = by_systemd or outdated or (now.pending and any(map(_is_unit_file, self.paths)))
        events = (
            *self._file_events(now, install, also),
            *acted(Action.UNMASK, *masked),
            *acted(Action.ENABLE, *disabled),
            *(self._plan_daemon_reload() if reload and not (by_systemd or restarts) else ()),
            *restarts,
        )
        marked = bool(self.mark) and new
        steps = [
            *_unit_steps(masked, disabled, reload=reload),
            *self._start_steps(restarts, new=new),
            *([f"rm -f {self.mark}"] if marked else []),
        ]
        commands = (*self._write_files(now, install, marked=marked), *also.commands)
        return ServiceChanges(events, (*commands, *([sudo_script("; ".join(steps))] if steps else [])))

    def _file_events(self, now: ServiceState, install: ServiceChanges, also: ServiceChanges) -> Iterator[Event]:
        yield from file_acted(Action.MOVE, *now.overrides, detail=f"it changes {' '.join(self.units)}")
        yield from (event for file, event in now.files if _is_first(file, install))
        yield from install.events
        yield from (event for file, event in now.files if not _is_first(file, install))
        yield from also.events

    def _start_steps(self, restarts: list[Event], *, new: bool) -> Iterator[str]:
        """Yield the shell text that starts units, restarts them, or has them read their files again."""
        if restarts and self.prepare:
            yield self.prepare
        yield from map(self._command_for_event, restarts)
        if restarts and self.after:
            yield self.after
        if new or restarts:
            yield from (f"systemctl start {unit}" for unit in self.starts)

    def removal(self, now: ServiceState, why: str, then: str = "") -> ServiceChanges:
        """Return what stops the service and removes all that is its own; nothing where nothing of it is left. What
        a package brought stays. `then`: shell text after it was stopped, before its files go."""
        own = [unit for unit in self.units if unit_file(unit) in self.paths]
        left = any(now.units[unit].load == "loaded" or now.units[unit].enabled for unit in own)
        if not (now.there or now.pending or now.overrides or left):
            return NO_CHANGES
        # Links are removed by hand: `systemctl disable` fails for a unit whose file is gone.
        links = " ".join(f"{UNITS}/*.wants/{unit}" for unit in self.units)
        steps = [
            f"systemctl stop {' '.join((*self.units, *self.starts))} 2> /dev/null || true",
            *([then] if then else []),
            f"rm -f {links} {quote(*self.paths, *self.leftovers)}",
            "systemctl daemon-reload",
            *([f"rm -f {self.mark}"] if self.mark else []),
        ]
        aside = [remote_files.move_aside(now.overrides)] if now.overrides else []
        return ServiceChanges(
            acted(Action.STOP_AND_REMOVE, " ".join(self.units), detail=why),
            (*self.set_mark(), *aside, sudo_script("; ".join(steps))),
        )

    def _plan_restarts(
        self,
        now: ServiceState,
        also: ServiceChanges,
        install: ServiceChanges,
        reasons: Mapping[str, Reason],
        reload_reasons: Mapping[str, Reason],
    ) -> list[Event]:
        """Return what each unit does that does not go on as it is."""
        found = []
        for unit in self.units:
            event = self._plan_restart(unit, now, also, install, reasons.get(unit))
            if event is None and (why := reload_reasons.get(unit)):
                event = _restart_event(unit, Action.RELOAD, why)
            found += [event] if event else []
        return found

    def _plan_restart(
        self, unit: str, now: ServiceState, also: ServiceChanges, install: ServiceChanges, reason: Reason | None
    ) -> Event | None:
        state = now.units[unit]
        if self.at_boot:
            return _restart_event(unit, Action.RESTART, reason) if reason else None
        if not (state.settled or (self.waits and state.running)):
            action = Action.RESTART if state.running else Action.START
            return _restart_event(unit, action, reason)
        changed = [file.path for file, _ in now.files if self._file_concerns_unit(file.path, unit)]
        unread = now.pending or state.reload or any(now.units[name].reload for name in self.starts)
        whole = any(map(_is_unit_file, changed)) or unread or bool(now.overrides or install.commands)
        read = bool(changed or also.commands)
        restart = self.reads is not Reads.NOTHING and (whole or (read and self.reads is Reads.RESTART))
        reload = self.reads is Reads.RELOAD and not restart and (read or reason is not None)
        if not (restart or reload) and reason is None:
            return None
        why = reason or (_UNREAD if unread and not read else None)
        return _restart_event(unit, Action.RELOAD if reload else Action.RESTART, why)

    def _file_concerns_unit(self, path: str, unit: str) -> bool:
        """Whether a file is one that a unit depends on: all are, but the unit files of another one."""
        owner = path.removeprefix(f"{UNITS}/").partition("/")[0].removesuffix(".d") if _is_unit_file(path) else unit
        return owner == unit or owner not in self.units

    def _command_for_event(self, event: Event) -> str:
        if event.action is Action.RELOAD:
            # A program that ended since it was looked at cannot be reloaded.
            return self.reload or f"systemctl reload {event.subject} || systemctl restart {event.subject}"
        # What is started may run by now, with older files; where nothing may be restarted it keeps them.
        start = event.action is Action.START and self.reads is Reads.NOTHING
        return self.restart or f"systemctl {'start' if start else 'restart'} {event.subject}"

    def _plan_daemon_reload(self) -> tuple[Event, ...]:
        why = f"it has not read the files of {' '.join((*self.units, *self.starts) or self.paths)}"
        return (Event(EventKind.RESTART, subject="systemd", action=Action.RELOAD, detail=why),)

    def _write_files(self, now: ServiceState, install: ServiceChanges, *, marked: bool) -> Iterable[StringCommand]:
        files = [file for file, _ in now.files]
        first = [file for file in files if _is_first(file, install)]
        if marked:
            yield from self.set_mark()
        if now.overrides:
            yield remote_files.move_aside(now.overrides)
        yield from remote_files.put_files(first)
        yield from install.commands
        yield from remote_files.put_files([file for file in files if not _is_first(file, install)])


def secret_file(
    path: str, content: bytes, actual: FileState | None, *, mode: str, group: str = "root", check: str = ""
) -> ServiceChanges:
    """Return what writes a file with secrets, of which only the hash is read; neither its content nor its hash is ever
    shown. actual: its state, None for missing. group, check: as in `remote_files.put`."""
    if actual == FileState(f"{mode} root:{group}", hashlib.sha256(content).hexdigest()):
        return NO_CHANGES
    action = Action.WRITE if actual is None else Action.REWRITE
    folder = quick_script(f"umask 022; mkdir -p {quote(posixpath.dirname(path))}")
    put = remote_files.put(path, content, mode=mode, check=check, group=group)
    return ServiceChanges(file_acted(action, path), (folder, put))


def unit_file(unit: str) -> str:
    """Return the path of the file of a unit of ours: that of its template for an instance (`name@instance.service`)."""
    return f"{UNITS}/{re.sub('@[^.]+', '@', unit)}"


def _unit_steps(masked: list[str], disabled: list[str], *, reload: bool) -> Iterator[str]:
    """Yield the shell text after which systemd may start the units, and knows their files."""
    for unit in masked:
        yield from (f"systemctl unmask {runtime}--quiet {unit}" for runtime in ("", "--runtime "))
    if disabled:
        # With a reload of its own `enable` would take 0.3 to 1.5 s more.
        yield f"systemctl {'--no-reload ' if reload else ''}enable --quiet {' '.join(disabled)}"
    if reload:
        yield "systemctl daemon-reload"


def _restart_event(unit: str, action: Action, reason: Reason | None) -> Event:
    if isinstance(reason, FieldValue):
        return Event(EventKind.RESTART, subject=unit, action=action, fields=(reason,))
    return Event(EventKind.RESTART, subject=unit, action=action, detail=reason or None)


def _is_first(file: ManagedFile, install: ServiceChanges) -> bool:
    """Whether a file is written before a package is installed."""
    return not install.commands or _is_unit_file(file.path)


def _is_unit_file(path: str) -> bool:
    return path.startswith(f"{UNITS}/")

"""What a role leaves on a node, and the operation that takes it off: ours goes, what was there before comes back.

Before the first change of a node a run copies what is there (`core.ops.record`), so that its former state is known and
never guessed; what was not recorded is reported as unknown, and kept. A mark lasts until a role is taken off as a
whole, so that the next run completes one that died in between.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.ops import apt, host_facts, remote_files
from core.ops.announce import file_diff
from core.ops.host_facts import HostReading
from core.ops.operation import Changeset, operation_on_host
from core.ops.record import RECORD, recorded
from core.ops.shell import quote, sudo_script
from core.util import resources
from core.util.event import Action, Event, EventKind, acted, file_acted, value_change

MARKS = "/var/lib/sparkrack/removing"
_ETC, _SYSTEMD = "/etc/", "/etc/systemd/system"

Restore = Callable[[bytes, bytes], bytes]
"""From what an edited file held before and what it holds now to what it is to hold; empty for no file."""


@dataclass(frozen=True)
class Traces:
    """What a role leaves on a node.

    role: its key. own: patterns of paths that are ours. edited: files of others in which we have changed something,
    each with what it is to hold again. links: patterns of links of others, which come back as they were. masks: names
    of units that we mask. units: patterns of units of ours that run. folders: of ours, which go as a whole. sysctls: a
    pattern of kernel settings. packages: that we install. holds: patterns of names that we hold. refuse: shell text
    that prints `block REASON`, or `note TEXT`. before, after: shell text before anything of ours goes, and after it.
    """

    role: str
    own: tuple[str, ...] = ()
    edited: Mapping[str, Restore] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    sysctls: str = ""
    packages: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    refuse: str = ""
    before: str = ""
    after: str = ""

    @property
    def key(self) -> str:
        """Name of its facts."""
        return f"removal-{self.role}"

    def register(self) -> Traces:
        """Have the node asked about these with the facts of all roles, and return them."""
        asked = {
            "each own": self.own,
            "each edited": tuple(self.edited),
            "each link": self.links,
            "masks": self.masks,
            "units": self.units,
            "folders": self.folders,
            "packages": self.packages,
            "holds": self.holds,
        }
        lines = [f"{name} {quote(*words)}" for name, words in asked.items() if words]
        lines += [f"kernel {quote(self.sysctls)}"] if self.sysctls else []
        questions = "\n".join([*lines, *([self.refuse] if self.refuse else []), ":"])
        script = resources.shell_text("core.ops", "templates/traces.sh", role=self.role, questions=questions)
        files = (*self.edited, *map(recorded, self.edited))
        host_facts.register(self.key, host_facts.Probe(files=files, commands={self.key: script}))
        return self


@dataclass(frozen=True)
class Found:
    """What a node has of the traces: lines of `kind state name`."""

    traces: Traces
    reading: HostReading
    lines: tuple[tuple[str, str, str], ...]

    @classmethod
    def read(cls, reading: HostReading, traces: Traces) -> Found:
        """Parse the answer of a node. Raises ValueError for a line of another form, UnknownError without an answer."""
        lines = []
        for line in reading.text(traces.key).splitlines():
            kind, _, rest = line.partition(" ")
            state, _, name = rest.partition(" ")
            if kind in ("block", "note"):
                state, name = "", rest
            elif kind not in _KINDS or not state or (not name and kind != "record"):
                raise ValueError(f"{traces.key}: unexpected probe output {line[:80]!r}")
            lines.append((kind, state, name))
        return cls(traces, reading, tuple(lines))

    def names(self, kind: str, *states: str) -> list[str]:
        """Return the names of a kind in some of these states, each once."""
        return list(dict.fromkeys(name for k, state, name in self.lines if k == kind and state in states))

    @property
    def is_recorded(self) -> bool:
        """Whether it is known what was there before the first change."""
        return ("record", "yes", "") in self.lines

    @property
    def pending(self) -> bool:
        """Whether an earlier removal of this role was interrupted."""
        return bool(self.names("pending", "yes"))


_KINDS = frozenset(
    ("record", "own", "edited", "link", "mask", "folder", "unit", "package", "hold", "sysctl", "pending")
)


def _read_traces(host: Host, traces: Traces) -> Found:
    return Found.read(host_facts.read(host, traces.key), traces)


@operation_on_host(_read_traces)
def take_off(found: Found) -> Changeset:
    """Stop and remove what is ours, and bring back what was there before the first run."""
    return changeset(found)


def changeset(found: Found) -> Changeset:
    """Return what takes the traces of a role off a node."""
    traces = found.traces
    if blocks := found.names("block", ""):
        return Changeset(blockers=tuple(blocks))
    traced = _Traced.of(found)
    warnings = tuple(_note_what_stays(found, some=bool(traced.gone or traced.units or traced.folders)))
    if not (traced.some or found.pending):
        return Changeset(warnings=warnings, in_sync_reason="nothing of it is here")
    events = tuple(_list_events(found, traced)) or (
        Event(EventKind.CHANGE, subject=traces.role, detail="an interrupted removal is completed"),
    )
    return Changeset(warnings=warnings, events=events, commands=tuple(_list_commands(found, traced)))


@dataclass(frozen=True)
class _Traced:
    """What is to change. gone: files and links that go; back: those that come back; edits: files that are edited;
    settings: of the kernel: key, value now, value before."""

    gone: list[str]
    back: list[str]
    edits: dict[str, bytes]
    packages: list[str]
    holds: list[str]
    units: list[str]
    folders: list[str]
    settings: list[tuple[str, str, str]]

    @classmethod
    def of(cls, found: Found) -> _Traced:
        """Return what a removal changes."""
        gone, back = found.names("own", "new"), found.names("own", "changed", "missing")
        if found.is_recorded:
            gone += found.names("link", "new") + found.names("mask", "new")
            back += found.names("link", "changed", "missing") + found.names("mask", "changed")
        settings = []
        for kind, key, values in found.lines:
            if kind == "sysctl":
                now, old = values.split(" ", 1)
                settings.append((key, now, old))
        return cls(
            gone,
            back,
            dict(_list_edits(found)),
            packages=found.names("package", "new"),
            holds=found.names("hold", "new"),
            units=found.names("unit", "now"),
            folders=found.names("folder", "new"),
            settings=settings,
        )

    @property
    def some(self) -> bool:
        """Whether anything of the role is there; settings of the kernel alone do not count."""
        return any((self.gone, self.back, self.edits, self.packages, self.holds, self.units, self.folders))


def _list_events(found: Found, traced: _Traced) -> Iterator[Event]:
    yield from acted(Action.STOP, *traced.units)
    yield from file_acted(Action.REMOVE, *traced.gone, *(f"{folder}/" for folder in traced.folders))
    yield from file_acted(Action.RESTORE, *traced.back)
    yield from (file_diff(path, found.reading.content(path), after or None) for path, after in traced.edits.items())
    yield from (value_change(key, now, old) for key, now, old in traced.settings)
    yield from acted(Action.REMOVE, *traced.packages, detail="this package was not here before")
    yield from acted(Action.UNHOLD, *traced.holds)


def _list_commands(found: Found, traced: _Traced) -> Iterator[StringCommand]:
    mark = f"{MARKS}/{found.traces.role}"
    yield sudo_script("; ".join((f"umask 022; mkdir -p {MARKS}; : > {mark}", *_stop_and_remove(found, traced))))
    yield from (_restore_edited_file(found, path, after) for path, after in traced.edits.items())
    yield sudo_script("\n".join(_apply_what_is_back(found, traced)))
    if traced.packages:
        yield _purge_packages(traced.packages)
    if traced.holds:
        yield sudo_script(f"{apt.wait()}\napt-mark unhold {quote(*traced.holds)} > /dev/null")
    yield sudo_script(f"rm -f {mark}; rmdir {MARKS} {posixpath.dirname(MARKS)} 2> /dev/null || true")


def _stop_and_remove(found: Found, traced: _Traced) -> Iterator[str]:
    """Yield the shell text that stops the units, removes what is ours, and copies back what was there."""
    traces = found.traces
    if traces.units and (traced.units or traced.gone):
        # Also what a timer has started meanwhile; systemd itself matches the patterns with the units that it has
        # loaded.
        yield f"systemctl stop {quote(*traces.units)} || true"
    if traces.before:
        yield traces.before
    if traced.gone:
        yield f"rm -f {quote(*traced.gone)}"
    if traced.folders:
        yield f"rm -rf {quote(*traced.folders)}"
    yield from map(_bring_back, traced.back)


def _apply_what_is_back(found: Found, traced: _Traced) -> Iterator[str]:
    """Yield the shell text by which kernel, systemd and programs read what was brought back."""
    yield _without_empty_folders(found.traces)
    yield from (f"sysctl -qw {quote(f'{key}={old}')} || true" for key, _, old in traced.settings)
    if found.pending or any(map(_is_read_by_systemd, (*traced.gone, *traced.back, *traced.edits))):
        yield "systemctl daemon-reload"
    if found.traces.after:
        yield found.traces.after


def _list_edits(found: Found) -> Iterator[tuple[str, bytes]]:
    """The edited files that are to change, each with what it is to hold."""
    for path in found.names("edited", "new", "changed") if found.is_recorded else ():
        now, before = found.reading.content(path), found.reading.content(recorded(path))
        if now is not None and (after := found.traces.edited[path](before or b"", now)) != now:
            yield path, after


def _note_what_stays(found: Found, *, some: bool) -> Iterator[Event]:
    """What stays, and why. `some`: whether anything of ours is there."""
    for text in found.names("note", ""):
        yield Event(EventKind.NOTE, detail=text)
    if some and not found.is_recorded:
        why = "unknown: kept; it is not recorded what was here before the first run"
        edited = found.names("edited", "new") + found.names("link", "new") + found.names("mask", "new")
        for name in (*edited, *found.names("package", "unknown"), *found.names("hold", "unknown")):
            yield Event(EventKind.NOTE, subject=name, detail=why)


def _bring_back(path: str) -> str:
    """Shell text that copies a file or link of the record to its place, in one step."""
    folder, name = posixpath.split(path)
    new = f"{folder}/.{name}.sparkrack-back"
    return (
        f"mkdir -p {quote(folder)}; rm -f {quote(new)}; cp -a {quote(recorded(path), new)}; mv -fT {quote(new, path)}"
    )


def _restore_edited_file(found: Found, path: str, after: bytes) -> StringCommand:
    if after == found.reading.content(recorded(path)):
        return sudo_script(_bring_back(path))
    if not after:
        return sudo_script(f"rm -f {quote(path)}")
    return remote_files.put(path, after, mode=f"$(stat -c %a {quote(path)})")


def _without_empty_folders(traces: Traces) -> str:
    """Shell text that removes the folders of /etc that are empty now and were not there before.

    All in which the role may have something: an interrupted removal has removed the files, and left their folders.
    """
    patterns = (*traces.own, *traces.edited, *traces.links)
    folders = sorted({posixpath.dirname(path) for path in patterns if path.startswith(_ETC)}, reverse=True)
    record = recorded("/etc")
    return (
        f"E=/etc; for d in {' '.join(folders)}; do "
        f'while [ -d {record} ] && [ "$d" != "$E" ] && [ ! -d "{record}/${{d#"$E"/}}" ] && rmdir "$d" 2> /dev/null; '
        "do d=${d%/*}; done; done"
    )


def _is_read_by_systemd(path: str) -> bool:
    return path.startswith("/etc/systemd/")


def _purge_packages(packages: list[str]) -> StringCommand:
    """Remove packages with their settings, and what came with them: dependencies of them that nothing else needs."""
    known = f"{RECORD}/packages"
    return sudo_script(
        f"{apt.wait()}\napt-get -q -y purge -- {quote(*packages)} > /dev/null\n"
        "left=$(apt-get -s autoremove | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' | "
        f"grep -vxF -f {known} || true)\n"
        '[ -z "$left" ] || printf \'%s\\n\' "$left" | xargs apt-get -q -y purge -- > /dev/null'
    )


def without_lines(is_ours: Callable[[bytes], bool]) -> Restore:
    """Return what restores a file in which single lines are ours: what it held before, and at its end the lines that
    others have added since."""

    def restore(before: bytes, now: bytes) -> bytes:
        known = set(before.splitlines())
        added = [line for line in now.splitlines() if line not in known and not is_ours(line)]
        if not added:
            return before
        start = before if not before or before.endswith(b"\n") else before + b"\n"
        return start + b"\n".join(added) + b"\n"

    return restore

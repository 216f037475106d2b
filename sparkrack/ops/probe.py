"""Read everything that the roles need of a node with one command, and tell known from absent from unknown."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gevent.lock import Semaphore
from paramiko import SSHException
from pyinfra.api.host import Host

from sparkrack.ops.refusal import unseen
from sparkrack.ops.shell import ask, quote

_END = "complete"
_FUNCTIONS = """\
f() {
if [ -e "$1" ] || [ -L "$1" ]; then
o=$(base64 -w0 < "$1" 2>/dev/null; printf '\\n%d' "$?")
printf '%s %s %s\\n' "$1" "${o##*
}" "${o%
*}"
else printf '%s absent\\n' "$1"; fi
}
c() {
o=$(sh -c "$2" 2>/dev/null; printf '\\n%d' "$?")
printf '%s %s ' "$1" "${o##*
}"
e=$(printf '%s' "${o%
*}" | base64 -w0) || e=unreadable
printf '%s\\n' "$e"
}"""


class UnknownError(Exception):
    """Something that a role needs could not be read. The text says what and why."""


@dataclass(frozen=True)
class Probe:
    """What one role reads: `files` by path and `commands` by a name, each a shell text that ends with exit 0.

    A missing file is absent, which is an answer; a command that fails is unknown, which is none. `lasting`: names of
    those that no operation of ours changes, so that they are asked once in a run.
    """

    files: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    lasting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reading:
    """What was read of a node: for each file and command its bytes, None for absent, or why it is unknown.

    `asked` and `answered`: when, by the clock of the operator's machine (seconds since 1970).
    """

    found: Mapping[str, bytes | None]
    unknown: Mapping[str, str]
    asked: float = 0
    answered: float = 0

    def content(self, key: str) -> bytes | None:
        """The bytes behind a path or command; None for a file that is not there. Raises UnknownError."""
        if key in self.unknown:
            raise UnknownError(f"{key}: {self.unknown[key]}")
        return self.found[key]

    def text(self, key: str) -> str:
        """The text behind a path or command. Raises UnknownError when it is absent, unreadable or no UTF-8."""
        content = self.content(key)
        if content is None:
            raise UnknownError(f"{key}: is not there")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise UnknownError(f"{key}: is not UTF-8 text") from None

    def number(self, key: str) -> int:
        """The whole number behind a path or command. Raises UnknownError when it is anything else."""
        text = self.text(key).strip()
        if not text.isascii() or not text.isdigit():
            raise UnknownError(f"{key}: is no number: {text[:40]!r}")
        return int(text)


@dataclass(frozen=True)
class _Kept:
    """A reading of one stage of a run; `forgotten`: only what lasts is left of it."""

    stage: bool
    reading: Reading
    forgotten: bool = False


_registered: dict[str, Probe] = {}
_readings: WeakKeyDictionary[Host, _Kept] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Host, Semaphore] = WeakKeyDictionary()


def register(role: str, probe: Probe) -> None:
    """Let a role's questions ride along: all roles that are loaded are asked for in one command."""
    _registered[role] = probe


def read(host: Host) -> Reading:
    """What the node says, read once and kept until `forget`. Raises UnknownError when anything of it is unknown.

    What was read to show a plan is not used to execute it: a person may have looked at it for an hour.
    """
    if unseen(host):
        raise UnknownError("no preview of the changes could be shown")
    stage = host.state.is_executing
    # An operation that looks at the whole fleet reads a host beside that host's own.
    with _locks.setdefault(host, Semaphore()):
        kept = _readings.get(host)
        if kept and kept.stage == stage and not kept.forgotten:
            return kept.reading
        lasting = kept.reading.found if kept and kept.stage == stage else {}
        probes = [_without(one, lasting) for one in _registered.values()]
        reading = _ask(host, probes, lasting)
        if reading.unknown:
            # Whichever role needs it: half a node that is known is no ground to start changing it.
            faults = [f"{key}: {why}" for key, why in reading.unknown.items()]
            raise UnknownError("; ".join(faults[:3]) + (f" and {len(faults) - 3} more" if len(faults) > 3 else ""))
        _readings[host] = _Kept(stage, reading)
        return reading


def _ask(host: Host, probes: list[Probe], lasting: Mapping[str, bytes | None]) -> Reading:
    asked = time.time()
    try:
        fine, output, complaints = ask(host, script(probes))
    except (OSError, EOFError, SSHException) as error:
        raise UnknownError(f"state of the node: {error}") from None
    if not fine:
        raise UnknownError(f"state of the node: {'; '.join(complaints[:3]) or 'the probe failed'}")
    reading = parse(probes, output)
    return Reading({**lasting, **reading.found}, reading.unknown, asked, time.time())


def _without(probe: Probe, lasting: Mapping[str, bytes | None]) -> Probe:
    """What of it is still to be asked."""
    known = probe.lasting & lasting.keys()
    commands = {key: text for key, text in probe.commands.items() if key not in known}
    return Probe(tuple(path for path in probe.files if path not in known), commands)


def peek(host: Host) -> Reading | None:
    """What was read of another host in this stage of the run, if anything is still good; asks nobody."""
    kept = _readings.get(host)
    return kept.reading if kept and kept.stage == host.state.is_executing and not kept.forgotten else None


def forget(host: Host) -> None:
    """Drop what was read, but for what lasts: an operation has changed, or begins to change, the node."""
    kept = _readings.get(host)
    if kept:
        names = frozenset[str]().union(*(one.lasting for one in _registered.values()))
        lasting = {key: content for key, content in kept.reading.found.items() if key in names}
        _readings[host] = _Kept(kept.stage, Reading(lasting, {}), forgotten=True)


def script(probes: list[Probe]) -> str:
    """One shell script that prints a line for each question: key, ok, absent or an exit code, content in base64."""
    parts = [_FUNCTIONS]
    for probe in probes:
        parts += [f"f {quote(path)}" for path in probe.files]
        parts += [f"c {quote(key, text)}" for key, text in probe.commands.items()]
    return "\n".join([*parts, f"echo {_END}"])


def parse(probes: list[Probe], lines: list[str]) -> Reading:
    """The answers in what the script printed; whatever is missing or garbled is unknown."""
    found: dict[str, bytes | None] = {}
    unknown: dict[str, str] = {}
    answers = {words[0]: words[1:] for words in (line.split(" ") for line in lines) if len(words) > 1}
    complete = bool(lines) and lines[-1].strip() == _END
    for key in (key for probe in probes for key in (*probe.files, *probe.commands)):
        match answers.get(key):
            case _ if not complete:
                unknown[key] = "the node's answer ends too early"
            case ["absent"]:
                found[key] = None
            case ["ok" | "0", content]:
                try:
                    found[key] = base64.b64decode(content, validate=True)
                except (binascii.Error, ValueError):
                    unknown[key] = "the node's answer is garbled"
            case [code, _]:
                unknown[key] = f"reading it ends with exit {code}"
            case _:
                unknown[key] = "the node did not answer"
    return Reading(found, unknown)

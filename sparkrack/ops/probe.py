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
from sparkrack.ops.shell import LOCALE, ask, quote

SECONDS = 40
"""How long a node may take to say everything, while all others wait for it. A slow one takes seconds (a virtual node on
a busy day: 12 s); one with a dead disk or driver never ends."""
_END = "complete"
# As few processes as can be: a line `PATH absent`, `PATH CONTENT CODE`, or `NAME CONTENT`, where the last line of a
# command's content is the code that it ended with. A command has a shell of its own, without input.
_FUNCTIONS = (
    f"{LOCALE}\n"
    """\
f() {
if [ -e "$1" ] || [ -L "$1" ]; then printf '%s ' "$1"; base64 -w0 < "$1" 2>/dev/null; printf ' %d\\n' "$?"
else printf '%s absent\\n' "$1"; fi
}
c() {
printf '%s ' "$1"
{ trap 'printf "\\n%d" "$?"' EXIT; t=$2; set --; eval "$t"; } </dev/null 2>/dev/null | base64 -w0
echo
}"""
)


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


_NOTHING = Reading({}, {})


@dataclass
class _Kept:
    """What is known of a host in one stage of a run: for each role what was read, and what lasts. `fault`: why it
    could not be read, if it could not. `changed`: an operation has changed the host since it was read whole."""

    stage: bool
    fault: str = ""
    readings: dict[str, Reading] = field(default_factory=dict)
    lasting: dict[str, bytes | None] = field(default_factory=dict)
    changed: bool = False


_registered: dict[str, Probe] = {}
_hosts: WeakKeyDictionary[Host, _Kept] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Host, Semaphore] = WeakKeyDictionary()


def register(role: str, probe: Probe) -> None:
    """Let a role's questions ride along: all roles that are loaded are asked for in one command."""
    _registered[role] = probe


def read(host: Host, role: str) -> Reading:
    """What the node says to a role's questions, kept until `forget`. Raises UnknownError when anything is unknown, and
    then for every role: a node that has not answered in time is not asked again by each of them.

    The first look asks for all roles at once, so a run that changes nothing costs one command. After a change only
    the role that asks is asked for again. What was read to show a plan is not used to execute it: a person may have
    looked at it for an hour.
    """
    if unseen(host):
        raise UnknownError("no preview of the changes could be shown")
    # An operation that looks at the whole fleet reads a host beside that host's own.
    with _locks.setdefault(host, Semaphore()):
        kept = _hosts.get(host)
        if kept is None or kept.stage != host.state.is_executing:
            kept = _hosts[host] = _Kept(host.state.is_executing)
        if role not in kept.readings and not kept.fault:
            asked = {role: _registered[role]} if kept.changed else _registered
            reading, kept.fault = _ask(host, [_without(one, kept.lasting) for one in asked.values()], kept.lasting)
        # Raised here, apart from what it was made of: a connection that an error's traceback knows is not closed.
        if kept.fault:
            raise UnknownError(kept.fault)
        if role not in kept.readings:
            names = frozenset[str]().union(*(one.lasting for one in asked.values()))
            kept.lasting |= {key: content for key, content in reading.found.items() if key in names}
            kept.readings |= dict.fromkeys(asked, reading)
        return kept.readings[role]


def _ask(host: Host, probes: list[Probe], lasting: Mapping[str, bytes | None]) -> tuple[Reading, str]:
    """What the node says, and why that is not enough, if it is not."""
    asked = time.time()
    try:
        fine, output, complaints = ask(host, script(probes), SECONDS)
    except TimeoutError as slow:
        return _NOTHING, f"state of the node: no whole answer in time ({slow or SECONDS})"
    except (OSError, EOFError, SSHException) as error:
        # pyinfra asks for a password when sudo wants one, and ends so where nobody can answer.
        why = str(error) or "it hung up, or sudo wants a password; access.user needs sudo without one"
        return _NOTHING, f"state of the node: {why}"
    if not fine:
        # The last lines: what a login shell says to everybody comes first.
        return _NOTHING, f"state of the node: {'; '.join(complaints[-3:]) or 'the probe failed'}"
    reading = parse(probes, output)
    # Whichever role needs it: half a node that is known is no ground to start changing it.
    faults = [f"{key}: {why}" for key, why in reading.unknown.items()]
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Reading({**lasting, **reading.found}, {}, asked, time.time()), "; ".join(faults[:3]) + more


def _without(probe: Probe, lasting: Mapping[str, bytes | None]) -> Probe:
    """What of it is still to be asked."""
    known = probe.lasting & lasting.keys()
    commands = {key: text for key, text in probe.commands.items() if key not in known}
    return Probe(tuple(path for path in probe.files if path not in known), commands)


def peek(host: Host, role: str) -> Reading | None:
    """What was read of another host in this stage of the run, if it is still good; asks nobody."""
    kept = _hosts.get(host)
    return kept.readings.get(role) if kept and kept.stage == host.state.is_executing else None


def forget(host: Host) -> None:
    """Drop what was read, but for what lasts: an operation has changed, or begins to change, the node.

    While a plan is made nothing changes, so there it stays.
    """
    kept = _hosts.get(host)
    if kept and host.state.is_executing:
        kept.readings.clear()
        kept.fault = ""
        kept.changed = True


def script(probes: list[Probe]) -> str:
    """One shell script that prints a line for each question, contents in base64."""
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
    if not lines or lines[-1].strip() != _END:
        early = "the node's answer ends too early"
        return Reading({}, {key: early for probe in probes for key in (*probe.files, *probe.commands)})
    for probe in probes:
        for key in (*probe.files, *probe.commands):
            said = answers.get(key)
            try:
                found[key] = _file(said) if key in probe.files else _output(said)
            except UnknownError as error:
                unknown[key] = str(error)
    return Reading(found, unknown)


def _file(said: list[str] | None) -> bytes | None:
    match said:
        case ["absent"]:
            return None
        case [content, "0"]:
            return _decoded(content)
        case [_, code]:
            raise UnknownError(f"reading it ends with exit {code}")
    raise UnknownError("the node did not answer")


def _output(said: list[str] | None) -> bytes:
    match said:
        case [content]:
            output, _, code = _decoded(content).rpartition(b"\n")
            if code == b"0":
                return output
            if code.isdigit():
                raise UnknownError(f"reading it ends with exit {code.decode()}")
            raise UnknownError("the node's answer is garbled")
    raise UnknownError("the node did not answer")


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise UnknownError("the node's answer is garbled") from None

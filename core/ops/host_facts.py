"""Read the facts of all roles from a node with one command, and distinguish known, absent and unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gevent.lock import Semaphore
from paramiko import SSHException
from pyinfra.api.host import Host

from core.model.errors import NO_SUDO
from core.ops.refusals import refused_in_preview
from core.ops.run_context import run_value
from core.ops.run_lock import clock
from core.ops.shell import run_script
from core.probes import protocol
from core.probes.protocol import Reading, UnknownError
from core.util.joined_questions import join_questions

ANSWER_SECONDS = 40
"""Seconds for the whole answer of a node, while all others wait for it. A slow node takes seconds (a virtual node on a
busy day: 12 s); one with a dead disk or driver never ends.
"""
CARRIED_SECONDS = 30
"""Seconds for which the facts of a plan that was made under the lock count at its execution. A plan of a whole rack
takes less than ten (a virtual rack on a busy day), and the execution begins right after it.
"""
READ = 'eval "$(cat)"'
"""The command that reads a node. Its script comes by standard input: that of all roles has 50 KB, 70 KB in the quotes
of sudo's shell, and one argument may have 128 KB (MAX_ARG_STRLEN of Linux). sudo leaves standard input alone: pyinfra
calls it with -n, or with -A and a program that prints the password."""


@dataclass(frozen=True)
class Probe:
    """The facts that one role reads: `files` by path and `commands` by a name, each a shell text that ends with exit 0.

    A missing file is absent, which is an answer; a command that fails is unknown. `constant`: names of the commands
    whose answers no operation of ours changes, so that they run once in a run.
    """

    files: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HostReading(Reading):
    """The facts of a node. `requested_at`, `answered_at`: seconds since 1970 by the clock of the operator's machine."""

    requested_at: float = 0
    answered_at: float = 0


_NOTHING = HostReading({}, {})


@dataclass
class _Cache:
    """Facts of a host in one stage of a run: for each role its reading, and the constant facts. `fault`: why the host
    could not be read, if it could not. `since`: when the host was first asked in this stage, by the clock of the lock.
    `changed`: an operation has changed the host since it was read completely.
    """

    executing: bool
    fault: str = ""
    since: float = 0
    readings: dict[str, HostReading] = field(default_factory=dict)
    constant: dict[str, bytes | None] = field(default_factory=dict)
    changed: bool = False


@dataclass
class _KnownHost:
    """What is kept of a host. An operation about all hosts may read this host while its own operation does, so each
    host has a lock. `carries`: whether the execution begins with the facts of the plan."""

    lock: Semaphore = field(default_factory=Semaphore)
    cache: _Cache | None = None
    carries: bool = False


_registered: dict[str, Probe] = {}


def register(role: str, probe: Probe) -> None:
    """Register the probe of a role: all registered roles are read with one command."""
    _registered[role] = probe


def read(host: Host, role: str) -> HostReading:
    """Return the facts of a role on a node, cached until they are invalidated. Raises UnknownError when a fact is
    unknown, and then for every role: a node that has not answered in time is not asked again by each of them.

    The first reading is for all roles at once, so a run that changes nothing costs one command. After a change only the
    role that asks is read again. Facts that were read to show a plan are not used to execute it, since the operator may
    have reviewed it for an hour; those of a plan that was made under the lock are, see `carry_facts`.
    """
    if refused_in_preview(host):
        raise UnknownError("no preview of the changes could be shown")
    known = run_value(host, _KnownHost)
    with known.lock:
        cache = known.cache
        if cache is None or cache.executing != host.state.is_executing:
            cache = known.cache = _begin_stage(known, executing=host.state.is_executing)
        if role not in cache.readings and not cache.fault:
            to_run = {role: _registered[role]} if cache.changed else _registered
            reading, cache.fault = _ask_node(
                host, [_remove_known_commands(one, cache.constant) for one in to_run.values()], cache.constant
            )
        # Raised here, without its cause: a connection that an error's traceback refers to is not closed.
        if cache.fault:
            raise UnknownError(cache.fault)
        if role not in cache.readings:
            names = frozenset[str]().union(*(one.constant for one in to_run.values()))
            cache.constant |= {key: content for key, content in reading.found.items() if key in names}
            cache.readings |= dict.fromkeys(to_run, reading)
        return cache.readings[role]


def carry_facts(host: Host) -> None:
    """Let the execution begin with the facts of a host that its plan has read, for CARRIED_SECONDS since it was asked.

    For a run that made its plan while it held the lock, and executes it at once. After an operation has changed the
    host the role that asks is read again, as ever.
    """
    run_value(host, _KnownHost).carries = True


def _begin_stage(known: _KnownHost, *, executing: bool) -> _Cache:
    """Return what is known of a host at the begin of a stage of the run."""
    plan = known.cache
    if plan and executing and known.carries and not plan.fault and 0 <= clock() - plan.since <= CARRIED_SECONDS:
        return replace(plan, executing=True)
    return _Cache(executing, since=clock())


def read_again(host: Host, role: str) -> HostReading:
    """Return the facts of a role on a node as they are now, with one command; what is cached stays as it is. Raises
    UnknownError when a fact is unknown."""
    reading, fault = _ask_node(host, [_registered[role]], {})
    if fault:
        raise UnknownError(fault)
    return reading


def _ask_node(host: Host, probes: list[Probe], constant: Mapping[str, bytes | None]) -> tuple[HostReading, str]:
    """Return the reading of a node, and why it is not sufficient, if it is not."""
    requested_at = time.time()
    try:
        succeeded, output, stderr_lines = run_script(host, READ, ANSWER_SECONDS, script(probes))
    except TimeoutError as slow:
        return _NOTHING, f"state of the node: no whole answer in time ({str(slow) or f'{ANSWER_SECONDS} s'})"
    except (OSError, EOFError, SSHException) as error:
        # pyinfra asks for a password when sudo needs one, and ends this way without a terminal.
        why = str(error) or f"it hung up, or {NO_SUDO}"
        return _NOTHING, f"state of the node: {why}"
    if not succeeded:
        # The last lines: the greeting of a login shell comes first.
        return _NOTHING, f"state of the node: {'; '.join(stderr_lines[-3:]) or 'the probe failed'}"
    reading = parse(probes, output)
    # Whichever role needs it: half a node that is known is not a reason to start changing it.
    faults = [f"{key}: {why}" for key, why in reading.unknown.items()]
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    return HostReading({**constant, **reading.found}, {}, requested_at, time.time()), "; ".join(faults[:3]) + more


def _remove_known_commands(probe: Probe, constant: Mapping[str, bytes | None]) -> Probe:
    """Return the probe without the commands whose answers are known."""
    known = probe.constant & constant.keys()
    commands = {key: text for key, text in probe.commands.items() if key not in known}
    return Probe(tuple(path for path in probe.files if path not in known), commands)


def cached(host: Host, role: str) -> HostReading | None:
    """Return the reading of another host in this stage of the run, if it is still valid; sends nothing."""
    cache = run_value(host, _KnownHost).cache
    return cache.readings.get(role) if cache and cache.executing == host.state.is_executing else None


def invalidate(host: Host) -> None:
    """Drop what was read, but for constant facts: an operation has changed, or begins to change, the node.

    While a plan is made nothing changes, so the cache is not dropped.
    """
    cache = run_value(host, _KnownHost).cache
    if cache and host.state.is_executing:
        cache.readings.clear()
        cache.fault = ""
        cache.changed = True


def script(probes: list[Probe]) -> str:
    """Return the script that asks the questions of all these probes."""
    commands, files = _merge_questions(probes)
    return protocol.script(commands, files, join_questions(commands))


def parse(probes: list[Probe], lines: list[str]) -> HostReading:
    """Parse the answers in the output of the script; a missing or garbled answer is unknown."""
    commands, files = _merge_questions(probes)
    try:
        reading = protocol.parse(lines, commands, files, join_questions(commands)).reading
    except protocol.IncompleteAnswerError:
        return HostReading({}, dict.fromkeys((*files, *commands), "the node's answer ends too early"))
    except protocol.InvalidAnswerError as error:
        return HostReading({}, dict.fromkeys((*files, *commands), f"the node's answer cannot be used: {error}"))
    return HostReading(reading.found, reading.unknown)


def _merge_questions(probes: list[Probe]) -> tuple[dict[str, str], dict[str, None]]:
    commands = {name: text for probe in probes for name, text in probe.commands.items()}
    return commands, dict.fromkeys(path for probe in probes for path in probe.files)

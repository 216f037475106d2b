"""Have the server read the switches every minute, and remove that from a node that no longer does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from posixpath import dirname

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.declared_secrets import secret_value
from core.model.secrets import SecretRef
from core.ops import host_facts, remote_files
from core.ops.announce import managed_file_change
from core.ops.operation import Changeset, operation_on_host
from core.ops.shared_survey import SharedSurvey
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, file_acted
from core.util.managed_file import FileState
from roles.watch import switch_reader
from roles.watch.facts import WatchFacts

_passwords: SharedSurvey[dict[SecretRef, str]] = SharedSurvey()


@dataclass(frozen=True)
class SwitchReaderFacts:
    """Facts of a node, and the file of the passwords; None where this node reads no switch."""

    facts: WatchFacts
    wanted: bytes | None

    @property
    def state(self) -> FileState:
        """The desired state of the file of the passwords."""
        digest = hashlib.sha256(self.wanted or b"").hexdigest()
        return FileState(f"{switch_reader.PASSWORDS_MODE} root:root", digest)


def _read(host: Host, rack: Rack, node: Node) -> SwitchReaderFacts:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not (facts.serves and switch_reader.switches(rack)):
        return SwitchReaderFacts(facts, None)
    refs = switch_reader.secrets(rack)
    values = _passwords.get(host.state, lambda: {ref: secret_value(rack, ref) for ref in refs})
    return SwitchReaderFacts(facts, switch_reader.passwords_text(rack, values))


@operation_on_host(_read)
def run_switch_reader(here: SwitchReaderFacts) -> Changeset:
    """Write the program, its units and the passwords, have the timer run, and read the switches at once.

    Each reading starts the service, so that nothing has to be restarted for a changed file.
    """
    facts = here.facts
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return _gone(facts)
    timer, stale = facts.reader_units[switch_reader.TIMER], facts.stale(switch_reader.files(facts.rack))
    secret = facts.passwords != here.state
    outdated = any(unit.reload for unit in facts.reader_units.values())
    units = outdated or any(file.path.endswith((".service", ".timer")) for file in stale)
    restart = units or not timer.settled
    if not (stale or secret or restart) and timer.enabled:
        return Changeset(in_sync_reason="the switches are read every minute")
    events = [managed_file_change(file, facts.before(file.path)) for file in stale]
    if secret:
        # Never its content, nor a hash of it.
        events += file_acted(Action.REWRITE if facts.passwords else Action.WRITE, switch_reader.PASSWORDS)
    events += acted(Action.UNMASK, switch_reader.TIMER) if timer.masked else ()
    events += acted(Action.ENABLE, switch_reader.TIMER) if not timer.enabled else ()
    if restart:
        action = Action.RESTART if timer.settled else Action.START
        events.append(Event(EventKind.RESTART, subject=switch_reader.TIMER, action=action))
    return Changeset(events=tuple(events), commands=tuple(_commands(here, units=units, restart=restart)))


def _commands(here: SwitchReaderFacts, *, units: bool, restart: bool) -> list[StringCommand]:
    facts = here.facts
    timer, stale = facts.reader_units[switch_reader.TIMER], facts.stale(switch_reader.files(facts.rack))
    folders = sorted({switch_reader.FOLDER, *(dirname(file.path) for file in stale)})
    commands = [sudo_script(f"umask 022; mkdir -p {quote(*folders)}")]
    if here.wanted is not None and facts.passwords != here.state:
        commands.append(remote_files.put(switch_reader.PASSWORDS, here.wanted, mode=switch_reader.PASSWORDS_MODE))
    commands += [remote_files.put_managed(file) for file in stale]
    steps = ["systemctl daemon-reload"] if units else []
    steps += [f"systemctl unmask --quiet {switch_reader.TIMER}"] if timer.masked else []
    steps += [f"systemctl enable --quiet {switch_reader.TIMER}"] if not timer.enabled else []
    steps += [f"systemctl restart {switch_reader.TIMER}"] if restart else []
    steps.append(f"systemctl start {switch_reader.SERVICE}")
    return [*commands, sudo_script("; ".join(steps))]


def _gone(facts: WatchFacts) -> Changeset:
    """Stop the timer, and remove the files, the passwords and the last values."""
    there = facts.passwords or any(facts.before(path) is not None for path in switch_reader.FILES)
    if not (there or facts.reader_units[switch_reader.TIMER].running):
        return Changeset(in_sync_reason="this node reads no switch")
    steps = (
        f"systemctl stop {switch_reader.TIMER} {switch_reader.SERVICE} 2> /dev/null || true",
        f"rm -f {quote(*switch_reader.LEFTOVERS)}",
        "systemctl daemon-reload",
    )
    return Changeset(
        events=acted(Action.STOP_AND_REMOVE, switch_reader.TIMER, detail="this node reads no switch"),
        commands=(sudo_script("; ".join(steps)),),
    )

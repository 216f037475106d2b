"""Prepare a node for RDMA, to the state in `desired` and `environment`."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import remote_files
from core.ops.announce import file_diff, managed_file_change
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quick_script, quote, sudo_script
from core.util.event import Event, EventKind, value_change
from core.util.managed_file import ManagedFile
from roles.rdma import ROLE, desired
from roles.rdma.facts import RdmaFacts


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Provide the environment of multi-node programs, no limit on pinned memory, and ARP that separates the halves of a
    port.

    No running process is restarted: it keeps the old environment and the old limits until it is restarted.
    """
    environment(name="Set the environment for RDMA workloads", rack=rack, node=node)
    memlock(name="Let RDMA pin memory", rack=rack, node=node)
    arp(name="Answer for each fabric address on its own half only", rack=rack, node=node)


@managed_operation("rdma", RdmaFacts)
def environment(facts: RdmaFacts) -> Changeset:
    """Write the environment, and comment out lines that disable RDMA in /etc/nccl.conf."""
    before, after = facts.nccl_conf
    stale = facts.stale(facts.environment)
    warnings = tuple(Event(EventKind.BROKEN, detail=line) for line in facts.environment_overriders)
    if before == after and not stale:
        return Changeset(warnings=warnings, in_sync_reason="the environment for RDMA workloads is as declared")
    events, commands = _file_events(facts, stale), _write_commands(stale)
    if before != after:
        events.append(file_diff(desired.NCCL_CONF, before, after))
        # A last check that the file was not written in between.
        unchanged = f"base64 -w0 {desired.NCCL_CONF} | grep -qxF {quote(remote_files.encoded(before))}"
        commands.append(remote_files.put(desired.NCCL_CONF, after, mode="644", before=before, check=unchanged))
    return Changeset(events=tuple(events), commands=tuple(commands), warnings=warnings)


@managed_operation("rdma", RdmaFacts)
def memlock(facts: RdmaFacts) -> Changeset:
    """Take the limit from pinned memory: for logins, and for what systemd starts from now on."""
    overriders, live = facts.memlock_overriders, facts.memlock
    stale = facts.stale([desired.limits(facts.rack), desired.manager(facts.rack)])
    if overriders:
        return Changeset(blockers=tuple(overriders))
    if not stale and live == "infinity":
        return Changeset(in_sync_reason="memory may be pinned")
    events, commands = _file_events(facts, stale), _write_commands(stale)
    if live != "infinity":
        events.append(value_change(desired.MEMLOCK, live, "infinity", "for what systemd starts from now on"))
        commands.append(sudo_script("systemctl daemon-reload"))
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("rdma", RdmaFacts)
def arp(facts: RdmaFacts) -> Changeset:
    """Let each interface answer for its own address only: live, at boot and whenever one appears."""
    overriders = facts.arp_overriders
    wrong = desired.wrong_sysctls(facts.rack, facts.node, facts.arp_live)
    stale = facts.stale([desired.arp_dropin(facts.rack, facts.node)])
    if overriders:
        return Changeset(blockers=tuple(overriders))
    if not stale and not wrong:
        return Changeset(in_sync_reason="each half answers for its own address")
    events, commands = _file_events(facts, stale), _write_commands(stale)
    events += [value_change(key, facts.arp_live[key], value) for key, value in wrong.items()]
    if wrong:
        commands.append(sudo_script(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}"))
    return Changeset(events=tuple(events), commands=tuple(commands))


def _file_events(facts: RdmaFacts, stale: Iterable[ManagedFile]) -> list[Event]:
    return [managed_file_change(file, facts.reading.content(file.path)) for file in stale]


def _write_commands(stale: Iterable[ManagedFile]) -> list[StringCommand]:
    stale = list(stale)
    folders = sorted({dirname(file.path) for file in stale})
    commands: list[StringCommand] = [quick_script(f"umask 022; mkdir -p {quote(*folders)}")] if folders else []
    return commands + [remote_files.put_managed(file) for file in stale]

"""Allow each node to log in to the others by key, and disable password login."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import host_facts, remote_files
from core.ops.announce import file_diff, managed_file_change
from core.ops.operation import Changeset, managed_operation, operation_on_host
from core.ops.shell import quick_script, quote, sudo_script
from core.util.event import Action, Event, EventKind, acted
from core.util.managed_file import ManagedFile
from roles.access import ROLE, authorized_keys, etc_hosts, foreign_access, known_hosts, node_key, peer_exchange
from roles.access.facts import CLIENT, CLOUD, FOREIGN, SSHD, TRIAL, AccessFacts
from roles.access.sshd_apply import harden
from roles.access.sshd_config import looks_elsewhere


@deploy(ROLE.title)
def apply(rack: Rack, node: Node, seconds: int = TRIAL.seconds) -> None:
    """Generate a key pair for each node, exchange and pin keys, keep names off loopback, allow only keys in sshd.

    seconds: how long a node waits for the confirmation of a login. Does not protect from a user who may log in as the
    account of rack.yaml: on one node this gives access to all of them.
    """
    own_key(name="Make the node's own key pair", rack=rack, node=node)
    exchange(name="Let the nodes log in to one another", rack=rack, node=node)
    own_name(name="Let the nodes' names stand for their addresses", rack=rack, node=node)
    harden(name="Let sshd take keys only", rack=rack, node=node, seconds=seconds, _serial=True)


@dataclass(frozen=True)
class ExchangeFacts:
    """Facts of the node, and of all nodes of the run as they are before the operation changes any."""

    node: AccessFacts
    peers: peer_exchange.PeerFacts
    operator_key: str | None = None


def _own_key_facts(host: Host, rack: Rack, node: Node) -> ExchangeFacts:
    facts = AccessFacts(host_facts.read(host, "access"), rack, node)
    facts.complete()
    _ = facts.peer  # the other nodes need it: if it is unknown, this node is refused, and they leave it alone
    return ExchangeFacts(facts, peer_exchange.for_step(host, rack, "own_key"))


def _exchange_facts(host: Host, rack: Rack, node: Node) -> ExchangeFacts:
    facts = AccessFacts(host_facts.read(host, "access"), rack, node)
    return ExchangeFacts(facts, peer_exchange.for_step(host, rack, "exchange"), peer_exchange.operator_key(rack))


@operation_on_host(_own_key_facts)
def own_key(facts: ExchangeFacts) -> Changeset:
    """The pair of this node, made on it; the private key goes nowhere."""
    name, account, found = facts.node.node.name, facts.node.account, facts.node.pair
    warnings = _account_warnings(facts)
    why = node_key.unusable(found)
    if why is None and name in facts.peers.twins:
        why = f"{facts.peers.twins[name]} has the same, so it was copied"
    if why is not None:
        return Changeset(
            warnings=warnings,
            events=acted(Action.GENERATE, node_key.NAME, detail=why),
            commands=(sudo_script(node_key.make(account, name)),),
        )
    wanted = node_key.public_line(found.key or "", name)
    wrong = node_key.misplaced(found, account)
    if found.public == wanted and not wrong.keys() - {"authorized"} and "folder" in found.things:
        return Changeset(warnings=warnings, in_sync_reason="the node has its own key pair")
    events = [
        Event(EventKind.CHANGE, subject=f"{thing} of the key pair", detail=f"{was} is put right")
        for thing, was in wrong.items()
    ]
    path = f"{account.folder}/{node_key.NAME}.pub"
    if found.public != wanted:
        events.append(file_diff(path, found.public, wanted))
    commands: list[StringCommand] = [
        quick_script(node_key.owned(thing, account)) for thing in ("folder", "private") if thing in wrong
    ]
    if found.public != wanted or "public" in wrong:
        check = _given_to(account.owner)
        commands.append(remote_files.put(path, wanted, mode=node_key.MODES["public"], check=check))
    return Changeset(warnings=warnings, events=tuple(events), commands=tuple(commands))


def _account_warnings(facts: ExchangeFacts) -> tuple[Event, ...]:
    """A warning when the same user has other numeric IDs elsewhere: not a problem by itself, but copied files change
    owner.
    """
    account = facts.node.account
    first = next(((name, peer) for name, peer in facts.peers.peers.items() if peer), None)
    if first is None or first[1].account.owner == account.owner:
        return ()
    reported = (
        f"{account.user} is {account.owner} on {facts.node.node.name} and {first[1].account.owner} on "
        f"{first[0]}: files that are copied with their numbers change hands"
    )
    return (Event(EventKind.OUTLIER, detail=reported),)


def _given_to(owner: str) -> str:
    """Shell text that gives a new file to its owner before it gets its name."""
    return f'chown {owner} "$new"'


def _require_unchanged_file(path: str, before: bytes | None) -> str:
    """Return shell text that fails when a file has changed since it was read."""
    look = f"[ ! -e {quote(path)} ]"
    if before is not None:
        look = f"sha256sum < {quote(path)} | grep -q '^{hashlib.sha256(before).hexdigest()} '"
    return f"{look} || {{ echo 'another process is writing this file; run again' >&2; exit 1; }}"


@operation_on_host(_exchange_facts)
def exchange(facts: ExchangeFacts) -> Changeset:
    """Write the keys that this node accepts, the host keys of the others, and the ssh configuration for them."""
    rack, node, reading = facts.node.rack, facts.node.node, facts.node.reading
    account, found = facts.node.account, facts.node.pair
    elsewhere = looks_elsewhere(reading.text(SSHD), account.home)
    ours = {path: reading.content(path) for path in (known_hosts.HOSTS, known_hosts.CLIENT)}
    shown = reading.text(CLIENT)
    validate = f'ssh -G -F "$new" -- {quote(node.name)} > /dev/null'
    client = ManagedFile(known_hosts.CLIENT, known_hosts.client(rack), validate=validate)
    obstacles = known_hosts.faults(rack, shown) if ours[known_hosts.CLIENT] == client.content else []
    if elsewhere:
        obstacles.append(f"sshd takes keys from {elsewhere}, not from .ssh/authorized_keys (AuthorizedKeysFile)")
    if obstacles:
        return Changeset(blockers=tuple(obstacles))
    warnings = (
        *(Event(EventKind.NOTE, detail=line) for line in facts.peers.unread_peers(rack)),
        *foreign_access.unmanaged(
            rack, node_key.entry(account), facts.operator_key, reading.text(FOREIGN), reading.text(SSHD)
        ),
    )
    before = found.authorized
    after = authorized_keys.authorized(rack, before or b"", facts.peers.peers, facts.operator_key)
    hosts = ManagedFile(
        known_hosts.HOSTS, known_hosts.known_hosts(rack, ours[known_hosts.HOSTS] or b"", facts.peers.peers)
    )
    stale = facts.node.stale((hosts, client))
    opened = "authorized" in node_key.misplaced(found, account)
    lets_in = after != (before or b"") or opened
    pending = facts.peers.without_key
    if not stale and not lets_in and not pending:
        return Changeset(warnings=warnings, in_sync_reason="the nodes of this run are known and may log in")
    events = [*acted(Action.ALLOW_LOGIN, *pending, detail="once its key is made")]
    commands: list[StringCommand] = []
    if lets_in:
        events += authorized_keys.changes(rack, before or b"", after)
        entry = node_key.entry(account)
        check, mode = (
            f"{_require_unchanged_file(entry, before)}; {_given_to(account.owner)}",
            node_key.MODES["authorized"],
        )
        commands.append(remote_files.put(entry, after, mode=mode, before=before, check=check))
    for file in stale:
        events.append(managed_file_change(file, ours[file.path]))
        commands.append(remote_files.put_managed(file))
    if client in stale:
        commands.append(sudo_script(known_hosts.proof(node)))
    return Changeset(
        # The keys that the operation before it makes on other nodes do not exist while a plan is made.
        warnings=warnings,
        events=tuple(events),
        commands=tuple(commands),
        provisional=bool(pending),
    )


@managed_operation("access", AccessFacts)
def own_name(facts: AccessFacts) -> Changeset:
    """The block of /etc/hosts that is ours, and the node's own name on no line of loopback."""
    name, found = facts.node.name, facts.reading.content(etc_hosts.HOSTS)
    after = etc_hosts.hosts(facts.rack, facts.node, facts.host_name, etc_hosts.BARE if found is None else found)
    boot, dropin = etc_hosts.cloud(facts.reading.text(CLOUD)), facts.reading.content(etc_hosts.CLOUD)
    if boot.later:
        reported = (
            f"has cloud-init write {etc_hosts.HOSTS} at boot and is read after {etc_hosts.CLOUD}; remove that line"
        )
        return Changeset(blockers=tuple(f"{path} {reported}" for path in boot.later))
    warnings = []
    if boot.user_data:
        reported = f"the user data of cloud-init says manage_etc_hosts, and so {etc_hosts.HOSTS} is undone at each boot"
        warnings.append(Event(EventKind.NOTE, detail=reported))
    if not etc_hosts.is_one_of(facts.host_name, [name]):
        reported = f"calls itself {facts.host_name}; `hostnamectl hostname {name}` corrects that"
        warnings.append(Event(EventKind.NOTE, detail=f"{name} {reported}"))
    undone = boot.writes and dropin != etc_hosts.CLOUD_TEXT
    if found == after and not undone:
        reason = "the names of the nodes stand for their addresses"
        return Changeset(warnings=tuple(warnings), in_sync_reason=reason)
    events, commands = [], []
    if undone:
        events.append(file_diff(etc_hosts.CLOUD, dropin, etc_hosts.CLOUD_TEXT))
        commands.append(remote_files.put(etc_hosts.CLOUD, etc_hosts.CLOUD_TEXT, mode="644"))
    if found != after:
        events.append(file_diff(etc_hosts.HOSTS, found, after))
        check = _require_unchanged_file(etc_hosts.HOSTS, found)
        commands.append(remote_files.put(etc_hosts.HOSTS, after, mode="644", before=found, check=check))
    return Changeset(warnings=tuple(warnings), events=tuple(events), commands=tuple(commands))

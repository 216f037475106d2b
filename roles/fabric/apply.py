"""Bring a node's fabric to the state in `desired`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from core.model import Node, Rack
from core.ops import announce, host_facts, refusals, remote_files
from core.ops.operation import Changeset, managed_operation
from core.ops.reconnect import run_on_new_connection
from core.ops.rollback import PendingChange
from core.ops.rollout import Rollout, rollout
from core.ops.shell import quote, sudo_script
from core.probes.protocol import UnknownError
from core.util.event import Action, EventKind, file_acted
from roles.fabric import ROLE, desired, foreign_netplan, scripts
from roles.fabric.facts import TRIAL, FabricFacts

PEER_SECONDS = 15
"""Seconds for a peer to answer the check, and for networkd to act."""


@deploy(ROLE.title)
def apply(rack: Rack, node: Node, seconds: int = TRIAL.seconds) -> None:
    """Give both halves of each cabled port their address and MTU: tested from outside, then confirmed.

    seconds: how long a node waits for the confirmation before it reverts the change. Does not protect from a failure of
    the management network itself during that time; the node then ends with its old fabric.
    """
    declare_hotplug(name="Say whether a ConnectX-7 port without a peer may be removed", rack=rack, node=node)
    configure_fabric(
        name="Give the fabric interfaces their addresses and MTU",
        rack=rack,
        node=node,
        seconds=seconds,
        _serial=True,
    )


@managed_operation("fabric", FabricFacts)
def declare_hotplug(facts: FabricFacts) -> Changeset:
    """Create or remove DGX OS's own switch file, which DGX OS reads when a cable or a peer is lost."""
    wanted, there = facts.rack.fabric.hotplug, facts.reading.content(desired.HOTPLUG) is not None
    if wanted is None:
        return Changeset(in_sync_reason="hotplug is left alone")
    if wanted == there:
        return Changeset(in_sync_reason=f"hotplug is {'on' if wanted else 'off'}")
    create = f"install -d -m 755 {desired.HOTPLUG.rpartition('/')[0]}; : > {desired.HOTPLUG}"
    return Changeset(
        events=file_acted(Action.CREATE if wanted else Action.REMOVE, desired.HOTPLUG),
        commands=(sudo_script(create if wanted else f"rm -f {desired.HOTPLUG}"),),
    )


@operation()
def configure_fabric(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """Change the fabric of one node, as one pending change.

    + rack: all nodes and cables
    + node: the one this host is
    + seconds: how long the node waits for the confirmation
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    view = read_or_refuse(host, rack, node, _list_obstacles)
    if not isinstance(view, FabricFacts):
        yield view
        return
    if view.unread and not host.state.is_executing:
        # Only before a run: in it, an earlier operation makes links negotiate.
        yield refusals.fail_unknown(host, *view.unread)
        return
    for line in _dead_now(host, view):
        announce.announce_warning(host, line, EventKind.BROKEN)
    progress = rollout(host, "fabric")
    if view.right:
        host.noop("the fabric interfaces are as declared")
        progress.done.add(node.name)
        return
    host_facts.invalidate(host)
    if view.before != view.wanted:
        announce.announce_diff(host, desired.KEPT, view.before, view.wanted)
    elif not view.private:
        announce.announce_change(host, file_acted(Action.PERMISSIONS, desired.KEPT))
    announce.announce_change(host, view.faults)
    if view.reading.content(desired.TRIED) is not None:
        announce.announce_change(
            host, file_acted(Action.REMOVE, desired.TRIED, detail="left by a run that was interrupted")
        )
    for path, content in view.adopted.items():
        announce.announce_change(host, file_acted(Action.ADOPT, path, detail=f"kept in {remote_files.BACKUPS}"))
        announce.announce_diff(host, path, content, None)
    if view.wanted is None:
        yield sudo_script("; ".join([f"rm -f {desired.KEPT} {desired.TRIED}", *scripts.deconfigure(view.now)]))
        return
    with progress.step(host, node.name):
        yield from _on_trial(host, progress, view, seconds)


def read_or_refuse(
    host: Host, rack: Rack, node: Node, obstacles: Callable[[FabricFacts], Iterable[str]]
) -> FabricFacts | PyinfraCommand:
    """Return what is known of a node before its fabric changes, or the command that refuses the change.

    obstacles: returns why the node must not be changed. It reads all facts that the change needs, so that an unknown
    fact is reported before any change.
    """
    try:
        view = FabricFacts(host_facts.read(host, "fabric"), rack, node)
        blockers = (*rollout(host, "fabric").blockers, *obstacles(view))
    except (UnknownError, ValueError) as unknown:
        return refusals.fail_unknown(host, unknown)
    return refusals.refuse(host, *blockers) if blockers else view


def _list_obstacles(view: FabricFacts) -> list[str]:
    right, units, _ = view.right, view.unit_blockers, view.dead
    return [*view.obstacles, *([] if right else units)]


def _dead_now(host: Host, view: FabricFacts) -> list[str]:
    """The problems of the links. A run reads them again: the switch may have been changed since the node was read."""
    if not view.dead or not host.state.is_executing:
        return view.dead
    try:
        return FabricFacts(host_facts.read_again(host, "fabric"), view.rack, view.node).still_dead(view.dead)
    except (UnknownError, ValueError):
        return view.dead  # nothing disproves them


def _on_trial(host: Host, progress: Rollout, view: FabricFacts, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """The change, between the arming of the node's own clock and its end."""
    rack, node, after = view.rack, view.node, view.wanted or b""
    entries = foreign_netplan.named_otherwise(view.adopted.values())
    trial = PendingChange(TRIAL.name, scripts.revert(view.now, view.adopted, entries), seconds)

    def changes() -> Iterator[PyinfraCommand]:
        shadows = scripts.shadow(view.adopted, remote_files.encoded(foreign_netplan.EMPTY_NETPLAN))
        yield _activate_trial(after, shadows + scripts.activate(desired.wanted(rack, node), view.now, entries))
        peers = progress.done | _right_already(host, view)
        yield FunctionCommand(prove_network, (scripts.proof(rack, node, view.now, peers, PEER_SECONDS),), {})
        yield _keep_file(after, trial, view.adopted)

    yield sudo_script(scripts.generate(candidate=True, adopted=view.adopted), stdin=remote_files.encoded(after))
    yield from trial.attempt(host, changes(), "the old network")


def _right_already(host: Host, view: FabricFacts) -> set[str]:
    """The other nodes of this run that need no change, by what was read of them for an earlier operation."""
    found = set()
    for other in host.state.inventory.get_active_hosts():
        node, reading = other.data.get("node"), host_facts.cached(other, "fabric")
        if node is None or reading is None or other is host:
            continue
        try:
            if FabricFacts(reading, view.rack, node).right:
                found.add(node.name)
        except (UnknownError, ValueError):
            continue  # it is refused when its turn comes
    return found


def _activate_trial(content: bytes, activate: str) -> PyinfraCommand:
    return sudo_script(
        f"umask 077; mkdir -p /run/netplan; base64 -d > {desired.TRIED}; {activate}",
        stdin=remote_files.encoded(content),
    )


def _keep_file(content: bytes, trial: PendingChange, adopted: Mapping[str, bytes]) -> PyinfraCommand:
    away = "".join(
        f"install -d -m 700 {remote_files.BACKUPS}; mv -fT {quote(path, remote_files.backup(path, before))}; "
        f"rm -f {quote(scripts.hidden(path))}; "
        for path, before in adopted.items()
    )
    return trial.keep(
        f"umask 077; new=$(mktemp /etc/netplan/.{desired.FILE}.XXXXXX); base64 -d > $new; chmod 600 $new; sync $new; "
        f"mv -fT $new {desired.KEPT}; {away}rm -f {desired.TRIED}; sync /etc/netplan",
        stdin=remote_files.encoded(content),
    )


def prove_network(state: State, host: Host, script: str) -> bool:
    """Management and fabric work, seen through a new connection; from a node itself by its way to the others."""
    others = (other.data.get("node") for other in state.inventory.get_active_hosts() if other is not host)
    peers = [(str(node.address), host.data.rack.access.port) for node in others if node]
    try:
        fine, output = run_on_new_connection(host, script, peers=peers)
    except OSError as error:
        fine, output = False, [str(error)]
    if not fine:
        for line in output or ["the proof could not be run"]:
            host.log_styled(f"not proven: {line}", fg="red", log_func=logger.error)
    return fine

"""Data that the nodes of a run exchange, read from all of them before the first is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyinfra.api.host import Host
from pyinfra.api.state import State

from core.model import Rack
from core.ops import host_facts
from core.ops.shared_values import SharedValue
from core.probes.protocol import UnknownError
from core.util import regular_file
from roles.access import node_key
from roles.access.desired import Peer, public_key
from roles.access.facts import AccessFacts


@dataclass(frozen=True)
class PeerFacts:
    """The nodes of this run by name; None for one that could not be read. `twins`: nodes with the same key as a node of
    an earlier rank; their key will be generated again and is not passed on.
    """

    peers: Mapping[str, Peer | None]
    twins: Mapping[str, str]

    def unread_peers(self, rack: Rack) -> list[str]:
        """Return why the lines of some nodes stay unchanged."""
        return [
            f"{name} {'could not be read' if name in self.peers else 'is not in this run'}; its keys stay as they are"
            for name in rack.nodes
            if self.peers.get(name) is None
        ]

    @property
    def without_key(self) -> list[str]:
        """The nodes whose key is yet to be made."""
        return [name for name, peer in self.peers.items() if peer is not None and peer.key is None]


_ROUNDS = {step: SharedValue[PeerFacts]() for step in ("own_key", "exchange")}


def for_step(host: Host, rack: Rack, step: str) -> PeerFacts:
    """The fleet as it is before the operation `step` changes anything: the first host that asks reads all of them.

    The hosts go through an operation at the same time. One that reads the others when it is its turn would find them
    half changed.
    """
    return _ROUNDS[step].get(host.state, lambda: _read_peers(host.state, rack))


def _read_peers(state: State, rack: Rack) -> PeerFacts:
    hosts = {other.data.get("node"): other for other in state.inventory.get_active_hosts()}
    named = {node.name: other for node, other in hosts.items() if node is not None}
    peers = {name: _peer_of_host(rack, name, named[name]) for name in rack.nodes if name in named}
    keys = {name: peer.key for name, peer in peers.items() if peer}
    twins = {name: twin for name in keys if (twin := node_key.duplicate_owner(name, list(keys), keys))}
    handed = {name: replace(peer, key=None) if peer and name in twins else peer for name, peer in peers.items()}
    return PeerFacts(handed, twins)


def _peer_of_host(rack: Rack, name: str, host: Host) -> Peer | None:
    try:
        return AccessFacts(host_facts.read(host, "access"), rack, rack.nodes[name]).peer
    except (UnknownError, ValueError):
        return None  # that host itself reports the problem


def operator_key(rack: Rack) -> str | None:
    """Return the public half of the key that the run logs in with, if it is beside the private one on this machine."""
    try:
        line = regular_file.read_text(f"{rack.access.key}.pub").strip()
        public_key(line)
    except (OSError, ValueError):
        return None
    return line

"""The first contact with several nodes: their identities first, then one after the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.model import SecretError
from core.ssh.client import ssh_config
from core.ssh.host_keys import HostKey, HostKeyError, pinned
from sparkrack.bootstrap.host_trust import KeyOffer, key_conflict, label, match_fingerprints, offer
from sparkrack.bootstrap.login_methods import NodesContext
from sparkrack.bootstrap.node_bootstrap import NodeBootstrap
from sparkrack.node_login.errors import BootstrapError

_AT_ONCE = 8
_BESIDE = 15.0
"""Seconds for a node that this run is not about."""


@dataclass(frozen=True)
class Trust:
    """Confirmation of unknown nodes: `vouchers` are fingerprints by node, from `file`; without a file `confirm` asks
    about one node. `replace`: also accept a node for which other keys are pinned.
    """

    file: Path | None
    vouchers: Mapping[str, frozenset[str]]
    confirm: Callable[[str, str], bool]
    replace: bool


@dataclass
class NodesBootstrap:
    """One run over the nodes `names`, in the order of their rank."""

    context: NodesContext
    trust: Trust
    names: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict, init=False)
    restart: list[str] = field(default_factory=list, init=False)
    missing: list[str] = field(default_factory=list, init=False)
    """Nodes with missing parts, in a dry run."""

    def run(self, *, dry: bool = False, lost: Callable[[], str] = lambda: "") -> None:
        """Bootstrap each node; the reason of a failed one is in `failed`, and the others continue. `lost` returns why
        nothing more may be sent to any: the run has lost its lock."""
        self.context = replace(self.context, lost=lost)
        offers = self._key_offers()
        believed = self._confirm_host_keys(offers)
        keys, ids = self._of_the_others()
        progress = self.context.progress
        progress.phase("read the nodes" if dry else "bootstrap the nodes", believed)
        for name, trusted in believed.items():
            if why := lost():
                self._fail_node(name, f"{why}; nothing was sent")
                continue
            taken = {key: other for key, other in keys.items() if other != name}
            fresh = not offers[name].known
            node = self.context.rack.nodes[name]
            contact = NodeBootstrap(self.context, node, trusted, fresh, taken, ids)
            try:
                ready = contact.run(dry=dry)
            except (BootstrapError, HostKeyError, SecretError) as fault:
                self._fail_node(name, str(fault))
                # Its keys count as its own for the nodes after it.
                keys |= {key: name for key in offers[name].keys if key not in keys}
                continue
            keys |= {key: name for key in contact.own if key not in keys}
            if contact.machine_id:
                ids.setdefault(contact.machine_id, name)
            if contact.restart:
                self.restart.append(name)
            if not ready:
                self.missing.append(name)
            progress.finish(name, "read" if dry else "ready")
            if not dry:
                self.context.say(f"{name}: ready")

    def _fail_node(self, name: str, why: str) -> None:
        self.context.progress.finish(name, "stopped")
        self.failed[name] = why
        self.context.say(f"{name}: stopped: {why}")

    def _key_offers(self) -> dict[str, KeyOffer]:
        rack, progress = self.context.rack, self.context.progress

        def ask(name: str) -> KeyOffer | BootstrapError:
            try:
                found = offer(rack, rack.nodes[name], self.context.timeout, self.trust.vouchers.get(name, frozenset()))
            except BootstrapError as fault:
                progress.finish(name, "no answer")
                return fault
            progress.finish(name, "answered")
            return found

        progress.phase("read the host keys", self.names)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = dict(zip(self.names, pool.map(ask, self.names), strict=True))
        offers = {}
        for name, answer in found.items():
            if isinstance(answer, KeyOffer):
                offers[name] = answer
            else:
                self._fail_node(name, str(answer))
        return offers

    def _confirm_host_keys(self, offers: Mapping[str, KeyOffer]) -> dict[str, tuple[HostKey, ...]]:
        """The keys by which each node may be spoken to; all questions come before the first answer is used."""
        access, trust = self.context.rack.access, self.trust
        believed: dict[str, tuple[HostKey, ...]] = {}
        asked = []
        for name, found in offers.items():
            fault = key_conflict(found, access.known_hosts, trust.replace)
            if fault:
                self._fail_node(name, str(fault))
            elif found.known:
                believed[name] = found.known
            elif trust.file:
                try:
                    believed[name] = match_fingerprints(found, name, trust.file, trust.vouchers)
                except BootstrapError as stop:
                    self._fail_node(name, str(stop))
            else:
                asked.append(name)
        for name in asked:
            for key in offers[name].keys:
                self.context.say(f"{name}: shows {label(key)} {key.fingerprint}{_shared_key_text(key, name, offers)}")
        for name in asked:
            if trust.confirm(name, offers[name].named):
                believed[name] = offers[name].keys[:1]
            else:
                self._fail_node(name, "its host key was not confirmed; nothing was sent")
        return {name: believed[name] for name in offers if name in believed}

    def _of_the_others(self) -> tuple[dict[HostKey, str], dict[str, str]]:
        """Host keys and machine-ids of the nodes that this run is not about: they keep theirs."""
        rack = self.context.rack
        others = [name for name in rack.nodes if name not in self.names]
        if others:
            self.context.progress.phase("compare with the other nodes", others)
        config = self.context.folder / "others.ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        keys: dict[HostKey, str] = {}
        ids: dict[str, str] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, (found, machine_id) in zip(
                others, pool.map(lambda name: self._identity_of_ready_node(name, config), others), strict=True
            ):
                keys |= {key: name for key in found if key not in keys}
                if machine_id:
                    ids.setdefault(machine_id, name)
                else:
                    self.context.say(f"{name}: is not asked or does not answer; its machine-id is not compared")
        return keys, ids

    def _identity_of_ready_node(self, name: str, config: Path) -> tuple[Iterable[HostKey], str]:
        try:
            return self._read_identity(name, config)
        finally:
            self.context.progress.finish(name)

    def _read_identity(self, name: str, config: Path) -> tuple[Iterable[HostKey], str]:
        rack = self.context.rack
        node = rack.nodes[name]
        try:
            found = offer(rack, node, 0)
            keys: set[HostKey] = {*found.keys, *found.pins}
        except BootstrapError:
            try:
                return pinned(rack.access.known_hosts, str(node.address), rack.access.port), ""
            except HostKeyError:
                return (), ""
        if not found.known:
            return keys, ""
        ask = ["ssh", "-F", str(config), name, "cat /etc/machine-id"]
        try:
            done = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BESIDE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return keys, ""
        text = done.stdout.decode(errors="replace").strip()
        return keys, text if done.returncode == 0 and len(text) == 32 and text.isalnum() else ""


# claim: bootstrap.cloned-identity
def _shared_key_text(key: HostKey, name: str, offers: Mapping[str, KeyOffer]) -> str:
    others = [other for other, found in offers.items() if other != name and key in found.keys]
    return f", as {', '.join(others)} does: all but one of them get new ones" if others else ""

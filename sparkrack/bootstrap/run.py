"""The first contact with several nodes: who is who first, then one after the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sparkrack.bootstrap.contact import Contact
from sparkrack.bootstrap.doors import Desk
from sparkrack.bootstrap.errors import ContactError
from sparkrack.bootstrap.trust import Offer, label, offer, stranger, vouched
from sparkrack.fleet import SecretError
from sparkrack.hostkeys import HostKey, HostKeyError, pinned
from sparkrack.proof.machines import ssh_config

_AT_ONCE = 8
_BESIDE = 15.0
"""Seconds for a node that this run is not about."""


@dataclass(frozen=True)
class Trust:
    """How a node that is not known yet is believed: `vouchers` are fingerprints by node, from `file`; without a file
    `confirm` asks a person about one node. `replace`: also a node for which other keys are pinned."""

    file: Path | None
    vouchers: Mapping[str, frozenset[str]]
    confirm: Callable[[str, str], bool]
    replace: bool


@dataclass
class Nodes:
    """One run over the nodes `names`, in the order of their rank."""

    desk: Desk
    trust: Trust
    names: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict, init=False)
    restart: list[str] = field(default_factory=list, init=False)
    missing: list[str] = field(default_factory=list, init=False)
    """Of a dry run: nodes that lack something."""

    def run(self, *, dry: bool = False) -> None:
        """Every node, each for itself: why one failed is in `failed`, and the others go on."""
        offers = self._offers()
        believed = self._believed(offers)
        keys, ids = self._of_the_others()
        for name, trusted in believed.items():
            taken = {key: other for key, other in keys.items() if other != name}
            fresh = not offers[name].known
            node = self.desk.rack.nodes[name]
            contact = Contact(self.desk, node, trusted, fresh, taken, ids)
            try:
                ready = contact.run(dry=dry)
            except (ContactError, HostKeyError, SecretError) as fault:
                self._fail(name, str(fault))
                # What it shows is its own, for the nodes after it.
                keys |= {key: name for key in offers[name].keys if key not in keys}
                continue
            keys |= {key: name for key in contact.mine if key not in keys}
            if contact.machine_id:
                ids.setdefault(contact.machine_id, name)
            if contact.restart:
                self.restart.append(name)
            if not ready:
                self.missing.append(name)
            if not dry:
                self.desk.say(f"{name}: ready")

    def _fail(self, name: str, why: str) -> None:
        self.failed[name] = why
        self.desk.say(f"{name}: stopped: {why}")

    def _offers(self) -> dict[str, Offer]:
        rack = self.desk.rack

        def ask(name: str) -> Offer | ContactError:
            try:
                return offer(rack, rack.nodes[name], self.desk.patience, self.trust.vouchers.get(name, frozenset()))
            except ContactError as fault:
                return fault

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = dict(zip(self.names, pool.map(ask, self.names), strict=True))
        offers = {}
        for name, answer in found.items():
            if isinstance(answer, Offer):
                offers[name] = answer
            else:
                self._fail(name, str(answer))
        return offers

    def _believed(self, offers: Mapping[str, Offer]) -> dict[str, tuple[HostKey, ...]]:
        """The keys by which each node may be spoken to; all questions come before the first answer is used."""
        access, trust = self.desk.rack.access, self.trust
        believed: dict[str, tuple[HostKey, ...]] = {}
        asked = []
        for name, found in offers.items():
            fault = stranger(found, access.known_hosts, trust.replace)
            if fault:
                self._fail(name, str(fault))
            elif found.known:
                believed[name] = found.known
            elif trust.file:
                try:
                    believed[name] = vouched(found, name, trust.file, trust.vouchers)
                except ContactError as stop:
                    self._fail(name, str(stop))
            else:
                asked.append(name)
        for name in asked:
            for key in offers[name].keys:
                self.desk.say(f"{name}: shows {label(key)} {key.fingerprint}{_shared(key, name, offers)}")
        for name in asked:
            if trust.confirm(name, offers[name].named):
                believed[name] = offers[name].keys[:1]
            else:
                self._fail(name, "its host key was not confirmed; nothing was sent")
        return {name: believed[name] for name in offers if name in believed}

    def _of_the_others(self) -> tuple[dict[HostKey, str], dict[str, str]]:
        """Host keys and machine-ids of the nodes that this run is not about: they keep theirs."""
        rack = self.desk.rack
        others = [name for name in rack.nodes if name not in self.names]
        config = self.desk.folder / "others.ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        keys: dict[HostKey, str] = {}
        ids: dict[str, str] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, (found, machine_id) in zip(
                others, pool.map(lambda name: self._beside(name, config), others), strict=True
            ):
                keys |= {key: name for key in found if key not in keys}
                if machine_id:
                    ids.setdefault(machine_id, name)
                else:
                    self.desk.say(f"{name}: is not asked or does not answer; its machine-id is not compared")
        return keys, ids

    def _beside(self, name: str, config: Path) -> tuple[Iterable[HostKey], str]:
        rack = self.desk.rack
        node = rack.nodes[name]
        try:
            found = offer(rack, node, 0)
            keys: set[HostKey] = {*found.keys, *found.pins}
        except ContactError:
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


def _shared(key: HostKey, name: str, offers: Mapping[str, Offer]) -> str:
    others = [other for other, found in offers.items() if other != name and key in found.keys]
    return f", as {', '.join(others)} does: all but one of them get new ones" if others else ""

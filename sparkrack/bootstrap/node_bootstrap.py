"""The way of one node from the account of its first-boot wizard to a login by key, step by step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model import Node
from core.ops.record import keep_record
from core.ssh.host_keys import KINDS, HostKey, HostKeyError, offered, pin, pinned
from sparkrack.bootstrap import regenerate_identity
from sparkrack.bootstrap.login_methods import NodeLogin, NodesContext
from sparkrack.bootstrap.node_facts import BEGIN, NodeState, host_keys, look, parse_node_state
from sparkrack.bootstrap.steps import BootstrapStep, is_called, set_up_for_another, steps
from sparkrack.node_login.errors import BootstrapError, last_line
from sparkrack.node_login.key_shell import RootShellProtocol

_PAUSE = 0.5


@dataclass
class NodeBootstrap:
    """One node. `trusted`: the host keys that it may show, confirmed or pinned; `fresh`: they are not pinned yet.
    `keys` and `ids`: host keys and machine-ids that are another node's, with its name."""

    context: NodesContext
    node: Node
    trusted: tuple[HostKey, ...]
    fresh: bool
    keys: Mapping[HostKey, str]
    ids: Mapping[str, str]
    own: tuple[HostKey, ...] = field(default=(), init=False)
    """The host keys that it has at the end."""
    machine_id: str = field(default="", init=False)
    restart: bool = field(default=False, init=False)
    """Whether it should be restarted: the running system has its old machine-id."""

    def __post_init__(self) -> None:
        self._login = NodeLogin(self.context, self.node, self.trusted)

    def run(self, *, dry: bool = False) -> bool:
        """Create what is missing; with `dry` only report it. Returns whether the node is ready now. Raises
        BootstrapError at the step that failed; the next run detects the completed steps.
        """
        if self.fresh and not dry:
            self.pin(self.trusted)
        root = self._login.enter()
        try:
            return self._report_missing(root) if dry else self._bring_up(root)
        finally:
            root.close()

    def write(self, root: RootShellProtocol, what: str, script: str) -> bytes:
        """Execute one change of the node, and report it when it is done."""
        output = self._login.ask(root, what, script)
        self.context.say(f"{self.node.name}: done: {what}")
        return output

    def pin(self, keys: Iterable[HostKey]) -> None:
        """Make these the keys that known_hosts has for the node."""
        access = self.context.rack.access
        wanted = sorted(dict.fromkeys(keys), key=lambda key: KINDS.index(key.kind))
        try:
            pin(access.known_hosts, str(self.node.address), access.port, wanted)
        except HostKeyError as fault:
            raise BootstrapError(str(fault)) from None

    def _report_missing(self, root: RootShellProtocol) -> bool:
        found = self._read_state(root)
        lines = [step.what for step in self._missing_steps(found)]
        lines += self._shared_identities(found)
        if self.fresh:
            lines.append(f"pin its host keys in {self.context.rack.access.known_hosts}")
        for line in lines:
            self.context.say(f"{self.node.name}: would {line}")
        self.own, self.machine_id = tuple(found.keys.values()), found.machine_id
        return not lines

    def _shared_identities(self, found: NodeState) -> list[str]:
        """In words, what it has in common with other nodes."""
        others = dict.fromkeys(self.keys[key] for key in found.keys.values() if key in self.keys)
        lines = [f"make new host keys: they are those of {', '.join(others)} too"] if others else []
        if not found.machine_id or found.machine_id in self.ids:
            why = f"it is that of {self.ids[found.machine_id]} too" if found.machine_id else "it has none"
            lines.append(f"make a new machine-id: {why}")
        return lines

    def _bring_up(self, root: RootShellProtocol) -> bool:
        found = self._read_state(root)
        missing = self._missing_steps(found)
        if missing:
            # Before the first change: what `sparkrack remove` brings back.
            self._login.ask(root, "record its former state", f"{BEGIN}{keep_record()}")
        for step in missing:
            self.write(root, step.what, step.script)
        self._own_host_keys(root, found)
        found = self._read_state(root)
        if not found.machine_id or found.machine_id in self.ids:
            self.write(
                root, "make a machine-id of its own; it counts after a restart", regenerate_identity.machine_id()
            )
            self.restart = True
            found = self._read_state(root)
        left = [step.what for step in self._missing_steps(found)] + self._shared_identities(found)
        if left:
            raise BootstrapError(f"still missing: {'; '.join(left)}")
        self.own, self.machine_id = tuple(found.keys.values()), found.machine_id
        self._prove_login()
        self._pin_host_keys()
        return True

    def _missing_steps(self, found: NodeState) -> list[BootstrapStep]:
        access = self.context.rack.access
        if why := "" if "user" in access.model_fields_set else set_up_for_another(found, access.user):
            raise BootstrapError(why)
        return steps(found, access.user, self.node.name, self.context.key)

    def _own_host_keys(self, root: RootShellProtocol, found: NodeState) -> None:
        """New host keys for those that another node has too. This machine knows them before sshd does, and knows the
        old ones until the end: whenever it is interrupted, what the node shows is pinned."""
        names = dict.fromkeys(self.keys[key] for key in found.keys.values() if key in self.keys)
        # All of them: nodes with one common key have all of them from the same image.
        stale = found.keys if names else {}
        final = dict(found.keys)
        if stale:
            others = ", ".join(names)
            script = regenerate_identity.stage(stale, self.node.name)
            final |= host_keys(self.write(root, f"make host keys of its own beside those of {others}", script))
            self.pin([*self.trusted, *final.values()])
            self._login.believe([*self.trusted, *final.values()])
            self.write(root, "put its own host keys in their place", regenerate_identity.switch(stale))
        self._login.believe([*self.trusted, *final.values()])
        if not stale and all(key in final.values() for key in self.trusted):
            return
        self.pin([*self.trusted, *final.values()])
        self.write(root, "let sshd read its host keys", regenerate_identity.reload())
        self._wait_for_keys(tuple(final.values()))

    def _wait_for_keys(self, final: tuple[HostKey, ...]) -> None:
        """Wait until the node shows these. Raises BootstrapError."""
        access = self.context.rack.access
        best = min((key.kind for key in final), key=KINDS.index)
        until = time.monotonic() + max(self.context.timeout, 5.0)
        self.context.progress.step(self.node.name, "wait until it shows its new host keys")
        while True:
            try:
                now = offered(str(self.node.address), access.port, 5.0, [best])
                if all(key in final for key in now):
                    return
                why = f"still shows {now[0].fingerprint}"
            except HostKeyError as fault:
                why = str(fault)
            if time.monotonic() > until:
                raise BootstrapError(f"sshd was reloaded to read its new host keys, and {why}; run again")
            time.sleep(_PAUSE)

    def _prove_login(self) -> None:
        """Verify a login like that of every later run: by key, to the keys that the node itself reports."""
        self._login.believe(self.own)
        shell = self._login.by_key()
        self.context.progress.step(self.node.name, "verify the login by key")
        refused = self._login.patiently(shell.refused)
        if refused:
            raise BootstrapError(
                f"all is written, and {self.context.rack.access.user} is not accepted by key: {refused}"
            )
        name = self._login.ask(shell, "read its name", "cat /proc/sys/kernel/hostname").decode(errors="replace").strip()
        if not is_called(name, self.node.name):
            raise BootstrapError(f"calls itself {last_line(name.encode())} after all")

    def _pin_host_keys(self) -> None:
        """All of its keys are pinned, and no others. A line that has it by a pattern stays, if it is right."""
        access = self.context.rack.access
        try:
            pins = pinned(access.known_hosts, str(self.node.address), access.port)
        except HostKeyError as fault:
            raise BootstrapError(str(fault)) from None
        try:
            if set(pins) != set(self.own):
                self.pin(self.own)
        except BootstrapError:
            if not pins or any(key not in self.own for key in pins):
                raise

    def _read_state(self, root: RootShellProtocol) -> NodeState:
        return parse_node_state(self._login.ask(root, "read its state", look(self.context.rack.access.user)))

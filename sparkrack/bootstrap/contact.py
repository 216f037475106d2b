"""The way of one node from the account of its first-boot wizard to a login by key, step by step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkrack.bootstrap import renew
from sparkrack.bootstrap.doors import Desk, Doors
from sparkrack.bootstrap.errors import ContactError, last_line
from sparkrack.bootstrap.reading import Seen, host_keys, look, seen
from sparkrack.bootstrap.session import Root
from sparkrack.bootstrap.steps import Step, is_called, steps
from sparkrack.fleet import Node
from sparkrack.hostkeys import KINDS, HostKey, HostKeyError, offered, pin, pinned

_PAUSE = 0.5


@dataclass
class Contact:
    """One node. `trusted`: the host keys that it may show, confirmed or pinned; `fresh`: they are not pinned yet.
    `keys` and `ids`: host keys and machine-ids that are another node's, with its name."""

    desk: Desk
    node: Node
    trusted: tuple[HostKey, ...]
    fresh: bool
    keys: Mapping[HostKey, str]
    ids: Mapping[str, str]
    mine: tuple[HostKey, ...] = field(default=(), init=False)
    """The host keys that it has at the end."""
    machine_id: str = field(default="", init=False)
    restart: bool = field(default=False, init=False)
    """Whether it should be restarted: what runs has its old machine-id."""

    def __post_init__(self) -> None:
        self._doors = Doors(self.desk, self.node, self.trusted)

    def run(self, *, dry: bool = False) -> bool:
        """Bring what is missing; with `dry` only tell it. Gives whether the node is ready now. Raises ContactError at
        the step that failed; what was done until then is found again by the next run."""
        if self.fresh and not dry:
            self.pin(self.trusted)
        root = self._doors.enter()
        try:
            return self._tell(root) if dry else self._bring(root)
        finally:
            root.close()

    def write(self, root: Root, what: str, script: str) -> bytes:
        """Carry out one change of the node, and say so when it is done."""
        output = self._doors.ask(root, what, script)
        self.desk.say(f"{self.node.name}: done: {what}")
        return output

    def pin(self, keys: Iterable[HostKey]) -> None:
        """Make these the keys that known_hosts has for the node."""
        access = self.desk.rack.access
        wanted = sorted(dict.fromkeys(keys), key=lambda key: KINDS.index(key.kind))
        try:
            pin(access.known_hosts, str(self.node.address), access.port, wanted)
        except HostKeyError as fault:
            raise ContactError(str(fault)) from None

    def _tell(self, root: Root) -> bool:
        found = self._look(root)
        lines = [step.what for step in self._steps(found)]
        lines += self._twins(found)
        if self.fresh:
            lines.append(f"pin its host keys in {self.desk.rack.access.known_hosts}")
        for line in lines:
            self.desk.say(f"{self.node.name}: would {line}")
        self.mine, self.machine_id = tuple(found.keys.values()), found.machine_id
        return not lines

    def _twins(self, found: Seen) -> list[str]:
        """In words, what it has in common with other nodes."""
        others = dict.fromkeys(self.keys[key] for key in found.keys.values() if key in self.keys)
        lines = [f"make new host keys: they are those of {', '.join(others)} too"] if others else []
        if not found.machine_id or found.machine_id in self.ids:
            why = f"it is that of {self.ids[found.machine_id]} too" if found.machine_id else "it has none"
            lines.append(f"make a new machine-id: {why}")
        return lines

    def _bring(self, root: Root) -> bool:
        found = self._look(root)
        for step in self._steps(found):
            self.write(root, step.what, step.script)
        self._own_host_keys(root, found)
        found = self._look(root)
        if not found.machine_id or found.machine_id in self.ids:
            self.write(root, "made a machine-id of its own; it counts after a restart", renew.machine_id())
            self.restart = True
            found = self._look(root)
        left = [step.what for step in self._steps(found)] + self._twins(found)
        if left:
            raise ContactError(f"still missing: {'; '.join(left)}")
        self.mine, self.machine_id = tuple(found.keys.values()), found.machine_id
        self._prove()
        self._settle()
        return True

    def _steps(self, found: Seen) -> list[Step]:
        return steps(found, self.desk.rack.access.user, self.node.name, self.desk.key)

    def _own_host_keys(self, root: Root, found: Seen) -> None:
        """New host keys for those that another node has too. This machine knows them before sshd does, and knows the
        old ones until the end: whenever it is interrupted, what the node shows is pinned."""
        names = dict.fromkeys(self.keys[key] for key in found.keys.values() if key in self.keys)
        # All of them: who has one in common has them from the same image.
        stale = found.keys if names else {}
        final = dict(found.keys)
        if stale:
            others = ", ".join(names)
            script = renew.stage(stale, self.node.name)
            final |= host_keys(self.write(root, f"made host keys of its own beside those of {others}", script))
            self.pin([*self.trusted, *final.values()])
            self._doors.believe([*self.trusted, *final.values()])
            self.write(root, "put its own host keys in their place", renew.switch(stale))
        self._doors.believe([*self.trusted, *final.values()])
        if not stale and all(key in final.values() for key in self.trusted):
            return
        self.pin([*self.trusted, *final.values()])
        self.write(root, "sshd has read its host keys", renew.reload())
        self._shows(tuple(final.values()))

    def _shows(self, final: tuple[HostKey, ...]) -> None:
        """Wait until the node shows these. Raises ContactError."""
        access = self.desk.rack.access
        best = min((key.kind for key in final), key=KINDS.index)
        until = time.monotonic() + max(self.desk.patience, 5.0)
        while True:
            try:
                now = offered(str(self.node.address), access.port, 5.0, [best])
                if all(key in final for key in now):
                    return
                why = f"still shows {now[0].fingerprint}"
            except HostKeyError as fault:
                why = str(fault)
            if time.monotonic() > until:
                raise ContactError(f"sshd was told to read its new host keys, and {why}; run again")
            time.sleep(_PAUSE)

    def _prove(self) -> None:
        """As every later run will come: by key, to the keys that the node itself says are its own."""
        self._doors.believe(self.mine)
        door = self._doors.by_key()
        refused = self._doors.patiently(door.refused)
        if refused:
            raise ContactError(f"all is written, and {self.desk.rack.access.user} is not let in by key: {refused}")
        name = (
            self._doors.ask(door, "asking its name", "cat /proc/sys/kernel/hostname").decode(errors="replace").strip()
        )
        if not is_called(name, self.node.name):
            raise ContactError(f"calls itself {last_line(name.encode())} after all")

    def _settle(self) -> None:
        """All of its keys are pinned, and no others. A line that has it by a pattern stays, if it is right."""
        access = self.desk.rack.access
        try:
            pins = pinned(access.known_hosts, str(self.node.address), access.port)
        except HostKeyError as fault:
            raise ContactError(str(fault)) from None
        try:
            if set(pins) != set(self.mine):
                self.pin(self.mine)
        except ContactError:
            if not pins or any(key not in self.mine for key in pins):
                raise

    def _look(self, root: Root) -> Seen:
        return seen(self._doors.ask(root, "reading what it is", look(self.desk.rack.access.user)))

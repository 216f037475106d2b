"""The restart of one node, and what it shows: what was written is in force, the names, the driver, the time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.model import Rack
from core.model.errors import counted
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import ProgressObserver
from core.verify.outcomes import Outcome
from sparkrack.accept.evaluate import not_shown, observed, refuted, unknown
from sparkrack.accept.load.part import HeldLock, LoadError, LoadRun, Marks, Results, working
from sparkrack.accept.model import MachineResult
from sparkrack.rebuild.restart import RESTART_SECONDS, NodeRestart

PART = "reboot"
ANSWER_SECONDS = 30
SETTLE_SECONDS = 60.0
"""Seconds within which a node that was told to restart is away, or up again."""
_APART = {"fabric": "fabric.reboot", "lossless": "lossless.reboot", "driver": "driver.reboot"}
"""Roles whose checks after a restart settle a claim of their own."""
_FACTS = """\
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo "kernel $(uname -r)"
for i in {names}; do
    [ ! -e "/sys/class/net/$i" ] ||
        echo "interface $i $(cat "/sys/class/net/$i/address") $(basename "$(readlink -f "/sys/class/net/$i/device")")"
done
for i in /boot/vmlinuz-*; do [ ! -e "$i" ] || echo "installed ${{i#/boot/vmlinuz-}}"; done | sort -V
echo "hosts $(sha256sum < /etc/hosts)"
! command -v cloud-init > /dev/null || [ -e /etc/cloud/cloud-init.disabled ] || echo cloud-init
"""


@dataclass(frozen=True)
class Facts:
    """What a node is before a restart, and after it."""

    boot: str
    kernel: str
    interfaces: tuple[str, ...]
    installed: tuple[str, ...]
    hosts: str
    cloud_init: bool

    @classmethod
    def parse(cls, text: str) -> Facts:
        """Raises ValueError for an answer without a boot or a kernel."""
        values: dict[str, list[str]] = {}
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            values.setdefault(key, []).append(value)
        boot, kernel = (values.get(key, [""])[0] for key in ("boot", "kernel"))
        if not re.fullmatch(r"[0-9a-f-]{36}", boot) or not kernel:
            raise ValueError(f"the answer is not understood: {text[:80]!r}")
        return cls(
            boot,
            kernel,
            tuple(values.get("interface", ())),
            tuple(values.get("installed", ())),
            values.get("hosts", [""])[0],
            "cloud-init" in values,
        )


CLAIMS = (
    *_APART.values(),
    *("reboot.settings", "reboot.duration", "driver.grub-newest", "access.cloud-init-hosts"),
)


def restarted_node(run: LoadRun, node: str, checks: Sequence[Path]) -> Results:
    """Restart the node, or go on where a run that was killed has restarted it; `checks`: those of `sparkrack reboot`.
    Raises LoadError when the node does not come back.
    """
    names = [half.interface for port in run.rack.cabling.ports_of(node) for half in port.halves]
    with open_shells(run.rack, [node], ANSWER_SECONDS) as shells:
        shell = shells[node]
        restart = NodeRestart(run.rack, node, shell, checks, run.progress, run.say)
        ask = partial(_facts, shell, _FACTS.format(names=" ".join(names)))
        try:
            now, before = ask(), _begun(run.marks, node)
            if before is None or before.boot == now.boot:
                if busy := working(run.rack, [node], containers=True):
                    return _everywhere(node, f"not tried: {busy[node]}")
                before = now
                run.marks.begin(PART, json.dumps({"node": node, "facts": _text(now)}))
                _go(run.held, node, restart)
            if fault := restart.wait(before.boot, RESTART_SECONDS):
                raise LoadError(f"{node}: {fault}")
            if run.held.head == node and restart.seconds is not None:
                run.held.take()
            after = ask()
        except (UnreachableError, ValueError) as fault:
            return _everywhere(node, str(fault))
        restart.prove()
    return _results(run.rack, node, before, after, restart)


def await_restart(rack: Rack, marks: Marks, progress: ProgressObserver, say: Callable[[str], None]) -> None:
    """Wait for a node that a run which was killed has restarted. Raises LoadError when it does not come back."""
    if (text := marks.begun.get(PART)) is None:
        return
    found = json.loads(text)
    node, before = found["node"], Facts.parse(found["facts"])
    progress.phase("wait for the node that an earlier run restarted", [node])
    with open_shells(rack, [node], ANSWER_SECONDS) as shells:
        restart = NodeRestart(rack, node, shells[node], (), progress, say)
        # It may have been killed before it told the node to restart.
        if restart.wait(before.boot, SETTLE_SECONDS) and (fault := restart.wait("", RESTART_SECONDS)):
            raise LoadError(f"{node}: {fault}")


def _begun(marks: Marks, node: str) -> Facts | None:
    found = json.loads(marks.begun.get(PART, "{}"))
    return Facts.parse(found["facts"]) if found.get("node") == node else None


def _go(held: HeldLock, node: str, restart: NodeRestart) -> None:
    held.check()
    if node == held.head:
        held.restarts()
    if fault := restart.begin():
        raise LoadError(f"{node}: {fault}")


def _everywhere(node: str, text: str) -> Results:
    return {claim: [unknown(node, text)] for claim in CLAIMS}


def _facts(shell: RootShell, command: str) -> Facts:
    return Facts.parse(str(shell.run(command).stdout))


def _text(facts: Facts) -> str:
    lines = [f"boot {facts.boot}", f"kernel {facts.kernel}", f"hosts {facts.hosts}"]
    lines += [f"interface {one}" for one in facts.interfaces] + [f"installed {one}" for one in facts.installed]
    return "\n".join([*lines, *(["cloud-init"] if facts.cloud_init else [])])


# claim: access.cloud-init-hosts, driver.grub-newest, driver.reboot, fabric.reboot, lossless.reboot, reboot.duration
# claim: reboot.settings
def _results(rack: Rack, node: str, before: Facts, after: Facts, restart: NodeRestart) -> Results:
    by_role = {
        claim: [_of_checks(rack, node, restart.outcomes, partial(str.__eq__, own))] for own, claim in _APART.items()
    }
    if before.interfaces != after.interfaces:
        text = f"before: {', '.join(before.interfaces)}; after: {', '.join(after.interfaces)}"
        by_role["fabric.reboot"] = [refuted(node, text)]
    return {
        **by_role,
        "reboot.settings": [_of_checks(rack, node, restart.outcomes, lambda role: role not in _APART)],
        "reboot.duration": [_duration(node, restart.seconds)],
        "driver.grub-newest": [_kernel(node, after)],
        "access.cloud-init-hosts": [_hosts(node, before, after)],
    }


def _of_checks(rack: Rack, node: str, outcomes: Sequence[Outcome], of: Callable[[str], bool]) -> MachineResult:
    """What the checks of some roles show."""
    own = [one for one in outcomes if of(one.role)]
    if wrong := [one.why for one in own if one.failed]:
        return refuted(node, "; ".join(dict.fromkeys(wrong)))
    if dark := [one.why for one in outcomes if one.unknown and (of(one.role) or one.role == "-")]:
        return unknown(node, "; ".join(dict.fromkeys(dark)))
    if not own:
        return not_shown(node, f"{rack.source.name} declares nothing of it, so no check ran")
    roles = ", ".join(dict.fromkeys(one.role for one in own))
    return observed(node, f"{counted(len(own), 'check')} passed after the restart ({roles})")


def _duration(node: str, seconds: float | None) -> MachineResult:
    if seconds is None:
        return not_shown(node, "a run that was ended had restarted it, so the time was not measured")
    return observed(node, f"answers {seconds:.0f} s after it was told to restart")


def _kernel(node: str, after: Facts) -> MachineResult:
    if len(after.installed) < 2:
        return not_shown(node, f"runs {after.kernel}; {counted(len(after.installed), 'kernel')} in /boot, wanted two")
    newest = after.installed[-1]
    text = f"runs {after.kernel} after the restart; the newest of {', '.join(after.installed)} is {newest}"
    return observed(node, text) if after.kernel == newest else refuted(node, text)


def _hosts(node: str, before: Facts, after: Facts) -> MachineResult:
    if not after.cloud_init:
        return not_shown(node, "cloud-init is not installed, or disabled")
    same = before.hosts == after.hosts
    return (observed if same else refuted)(node, f"/etc/hosts is {'as before' if same else 'another file'}")

"""Probe of preflight, and the facts of the nodes of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from gevent.lock import Semaphore
from pyinfra.api.host import Host

from core.hardware import gb10
from core.ops import host_facts, run_lock
from core.ops.run_context import run_value
from core.probes.protocol import UnknownError
from core.util import resources
from roles.preflight import parse
from roles.preflight.desired import (
    CLIENT,
    DESKTOP,
    ECN,
    HOTPLUG,
    KILLERS,
    LOGIN,
    OWNED,
    OWNER,
    SUDOERS,
    MachineFacts,
)

OS = "/etc/os-release"
CMDLINE = "/proc/cmdline"
MACHINE_ID = "/etc/machine-id"
LASTING = "preflight-machine"
NOW = "preflight-now"

# Lines `question exit text`: a tool that is missing or fails is an answer, since only one gate needs it. What a tool
# prints is put on one line, without the comments that dmidecode adds for a table newer than itself. nvidia-smi and
# lspci hang where GPU or card do; `timeout` ends them.
# claim: preflight.lspci-vpd
_ASK = resources.file_text("roles.preflight", "files/ask.sh")

_LASTING = resources.shell_text(
    "roles.preflight",
    "templates/machine.sh",
    ecn=ECN,
    hotplug=HOTPLUG,
    interfaces=gb10.SYSFS_INTERFACES,
    owner=OWNER,
    files=" ".join(OWNED),
    login=LOGIN,
    sudoers=SUDOERS,
    client=CLIENT,
)

# Every installer locks lock-frontend, dpkg itself as well. Another file system may have a locked file of the same
# number, so the holder must have this one open.
# docker keeps images below its data-root, since version 29 of a new engine below containerd's.
_NOW = resources.shell_text("roles.preflight", "templates/now.sh", killers=shlex.join(KILLERS), desktop=DESKTOP)

host_facts.register(
    "preflight",
    host_facts.Probe(
        files=(OS, CMDLINE, MACHINE_ID, run_lock.PATH),
        commands={
            LASTING: _ASK + _LASTING,
            NOW: _ASK + _NOW,
        },
        constant=frozenset({OS, CMDLINE, MACHINE_ID, LASTING}),
    ),
)


@dataclass
class _KnownNode:
    """What is kept of one node in one stage of a run."""

    lock: Semaphore = field(default_factory=Semaphore)
    facts: MachineFacts | Exception | None = None


def look(host: Host) -> MachineFacts:
    """Return the facts of a node, once for each stage of a run: all hosts are compared with the same facts.

    Raises UnknownError or ValueError for unknown facts; a node that does not answer is not waited for again.
    """
    node = run_value(host, _KnownNode, (_KnownNode, host.state.is_executing))
    with node.lock:
        if node.facts is None:
            node.facts = _machine_facts(host)
    if isinstance(node.facts, Exception):
        raise node.facts
    return node.facts


def _machine_facts(host: Host) -> MachineFacts | Exception:
    try:
        reading = host_facts.read(host, "preflight")
        texts = parse.Texts(*map(reading.text, (OS, CMDLINE, MACHINE_ID, LASTING, NOW)))
        return parse.facts(texts, asked=(reading.requested_at, reading.answered_at))
    except (UnknownError, ValueError) as unknown:
        return unknown


def busy(host: Host) -> run_lock.Holder | None:
    """Return another holder of the rack, by the lock file of this node, which is that of the rack only on its head
    node.

    Raises UnknownError if it is unknown.
    """
    content = host_facts.read(host, "preflight").content(run_lock.PATH)
    return run_lock.other_holder(host.state, None if content is None else content.decode(errors="replace"))


def fleet(host: Host) -> dict[str, MachineFacts]:
    """The facts of every node of this run, by name and in the order of the rack; who cannot be read is left out."""
    found = {}
    for other in host.state.inventory.get_active_hosts():
        node = other.data.get("node")
        if node is None:
            continue
        try:
            found[node.name] = look(other)
        except (UnknownError, ValueError):
            continue  # it is refused for that itself
    order = list(host.data.rack.nodes)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))

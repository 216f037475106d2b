"""The black box in the virtual rack: its section of rack.yaml with every stream, and what ends a node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import namespace as ns
from tests.lab.virtual import VirtualRack

SECTION = (
    "blackbox: {watchdog: false, pstore: false, panic: {softlockup: false, rcu_stalls: false}, remote: tls,"
    " netconsole: plain, recorder: {}}\n"
)
"""As far as a virtual node can have it: it has no watchdog that the role finds, and no pstore."""
BOOT = "tr -d - < /proc/sys/kernel/random/boot_id"
RECORDER = "/usr/local/lib/sparkrack/recorder.py"
RING = "/var/lib/sparkrack/blackbox/ring"
PEERS = "/var/lib/sparkrack/blackbox/peers"
WAIT = 600
"""Seconds for a boot, and for streams to resume: the machine of the tests is slow."""


@contextmanager
def section(rack: VirtualRack) -> Iterator[Path]:
    """The rack file with the section blackbox, applied."""
    path = rack.folder / "blackbox.yaml"
    path.write_text(rack.paths.rack.read_text() + SECTION)
    for left in (3, 2, 1, 0):  # on a machine that is too busy a node may not answer in time; the next run goes on
        done = rack.inside("sparkrack", "apply", "-y", "--only", "blackbox", rack=path, check=not left)
        if done.returncode == 0:
            break
    yield path
    for made in ("blackbox.yaml", "blackbox-ca.key", "blackbox-ca.pem"):
        (rack.folder / made).unlink(missing_ok=True)


def pids(rack: VirtualRack, node: str) -> list[int]:
    """The processes of a node's kernel."""
    return ns.matching(rack.paths.namespace, f"umid={rack.paths.namespace}-{node}")


def kill(rack: VirtualRack, node: str) -> float:
    """Kill the kernel of a node; return the time of that."""
    found = pids(rack, node)
    assert found, f"{node} does not run"
    died = time.time()
    ns.end(found)
    return died


def autopsy(rack: VirtualRack, file: Path, node: str) -> dict[str, Any]:
    """What the autopsy says, with its exit code checked."""
    done = rack.inside("sparkrack", "autopsy", node, "--json", rack=file, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"planned": 0, "unknown": 1}.get(found["verdict"], 2), done.stderr
    return found


def back(rack: VirtualRack, node: str, before: str) -> None:
    """Wait until a node is in another boot than `before` and has its evidence."""
    look = f'b=$({BOOT}); [ "$b" != {before} ] && [ -e /var/lib/sparkrack/blackbox/boots/$b/evidence.json ]'
    until = time.monotonic() + WAIT
    while rack.ssh(node, f"{look} && echo yes", check=False).strip() != "yes":
        assert time.monotonic() < until, f"{node} is not back with its evidence"
        time.sleep(1)


def samples(rack: VirtualRack, node: str, ring: str, last: int = 600) -> list[dict[str, Any]]:
    """The newest samples of a ring on a node, oldest first; none where there is no ring."""
    text = rack.ssh(node, f"[ ! -e {ring} ] || {RECORDER} dump --last {last} {ring}")
    return [json.loads(line) for line in text.splitlines()]

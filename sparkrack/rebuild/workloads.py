"""Workload of a node: the containers and units that run on it, if it accepts our key at all.

This does not use core.probes.protocol: it is one command of the login user, whose shell may be no POSIX shell, and the
exit status and error of ssh itself are half of the answer.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.client import ssh_config
from core.ssh.node_shells import ssh_config_file
from serving.running_engines import MARKS, describe_unit, nodes_of_unit, stop_command, unit_of_cgroup

CONTAINERS = (
    "sh -c '"
    "find /sys/fs/cgroup -ignore_readdir_race -type d "
    '"(" -name "docker-*.scope" -o -name "sparkrack-serve-*.service" ")" || exit; '
    f'for f in {MARKS}/*/wanted; do [ ! -e "$f" ] || echo "$f"; done'
    "'"
)
"""Prints the control group of each container that runs on a node, and of each service of a unit, and the mark of each
unit that is wanted and may have neither yet, a line each."""
_CONTAINER = re.compile(r"/docker-[^/]*\.scope")
_LARGEST = 1 << 20
"""Characters of the longest answer that is read."""
ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
MAX_WAIT_SECONDS = 120.0
"""Maximum seconds for which a node is asked again."""
POLL_SECONDS = 1.0
FAILED = 255
"""Exit status of ssh itself when it fails."""


class NodeReachability(Enum):
    """Reachability of a node."""

    OURS = "accepts our key"
    NOT_OURS = "is not in service: our key, or its host key, is not what this rack knows"
    AWAY = "does not answer, so it is not in service"
    UNKNOWN = "unknown"


_NOT_OURS = ("Permission denied (", "Host key verification failed")
_AWAY = ("Connection refused", "No route to host", "Network is unreachable", "Connection timed out", "Host is down")


@dataclass(frozen=True)
class NodeWorkload:
    """Workload of a node. `containers`, `units`: those that run, only when it is OURS. The container of a unit is not
    counted: it ends with its unit. `reason`: the error of ssh or the node. `transient`: the state may change in a
    moment, as of a booting node that accepts no login yet.
    """

    reachability: NodeReachability
    containers: int = 0
    units: tuple[str, ...] = ()
    reason: str = ""
    transient: bool = False


def query_workloads(
    rack: Rack, nodes: Iterable[str], question: str, timeout: float = 0, others: Iterable[str] = ()
) -> dict[str, NodeWorkload]:
    """Ask nodes in parallel; `question` is the command that prints their containers and units. Nothing is
    changed. `timeout`: seconds for which nodes that may be booting are asked again. `others`: more nodes, which are
    asked once.

    It needs no root: a node with only a broken sudo is in use all the same.
    """
    until = time.monotonic() + min(timeout, MAX_WAIT_SECONDS)
    names = list(nodes)
    found = _query_nodes(rack, [*names, *others], question)
    while (again := [name for name in names if found[name].transient]) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        found |= _query_nodes(rack, again, question)
    return found


def _query_nodes(rack: Rack, names: list[str], question: str) -> dict[str, NodeWorkload]:
    with ssh_config_file(ssh_config(rack)) as config, ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(names, pool.map(lambda name: _query_node(name, config, question), names), strict=True))


def _query_node(node: str, config: Path, question: str) -> NodeWorkload:
    try:
        done = subprocess.run(
            ["ssh", "-F", str(config), node, question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NodeWorkload(NodeReachability.UNKNOWN, reason=f"no answer within {ANSWER_SECONDS} s")
    except OSError as error:
        return NodeWorkload(NodeReachability.UNKNOWN, reason=f"ssh: {error.strerror}")
    return judged(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def judged(code: int, output: str, complained: str) -> NodeWorkload:
    """Interpret an answer. Everything that is not known to be harmless is unknown."""
    lines = [printable_line(line.strip()) for line in complained.splitlines() if line.strip()]
    reason = (lines[-1] if lines else f"exit {code}")[:200]
    if code == 0:
        try:
            containers, units = parse_workload(output)
        except ValueError as fault:
            return NodeWorkload(NodeReachability.UNKNOWN, reason=str(fault))
        return NodeWorkload(NodeReachability.OURS, containers=containers, units=units)
    if code == FAILED and lines:
        if any(word in lines[-1] for word in _NOT_OURS):
            return NodeWorkload(NodeReachability.NOT_OURS, reason=reason)
        # A machine that accepts a connection and is silent is alive.
        if lines[-1].startswith("ssh: connect to host") and any(lines[-1].endswith(word) for word in _AWAY):
            return NodeWorkload(NodeReachability.AWAY, reason=reason)
    return NodeWorkload(NodeReachability.UNKNOWN, reason=reason, transient=code == FAILED)


def parse_workload(output: str) -> tuple[int, tuple[str, ...]]:
    """Return the number of containers of no unit, and the units that run, from the output of CONTAINERS.

    Raises ValueError for any other output.
    """
    if len(output) > _LARGEST:
        raise ValueError("its list of containers is too long")
    containers, units = 0, dict[str, None]()
    for line in output.splitlines():
        if not line.startswith(("/sys/fs/cgroup/", f"{MARKS}/")):
            raise ValueError(f"it prints {printable_line(line)[:40] or 'an empty line'} instead of control groups")
        if name := unit_of_cgroup(line):
            units[name] = None
        else:
            containers += bool(_CONTAINER.search(line))
    return containers, tuple(units)


def workload_blockers(
    found: Mapping[str, NodeWorkload], rebuilt: Collection[str], named: Collection[str], *, ready: bool = False
) -> list[str]:
    """Return why these nodes may not be changed, a line each; none when they may. Units are judged by `unit_blockers`.

    `rebuilt`: nodes that are set up again, the others are only cabled to a switch that is. `named`: nodes whose
    containers may end. `ready`: the rebuilt nodes have been set up for us, so that each has to answer.
    """
    lines = []
    for name, workload in found.items():
        if name in named:
            continue
        what = "rebuilt" if name in rebuilt else "cabled to the switch"
        if workload.reachability is NodeReachability.OURS and workload.containers:
            count = f"{workload.containers} container{'' if workload.containers == 1 else 's'}"
            lines.append(f"{name}: {count} run on it and it is {what}; stop them, or pass --containers {name}")
        elif workload.reachability is NodeReachability.UNKNOWN or (
            ready and name in rebuilt and workload.reachability is not NodeReachability.OURS
        ):
            reason = f"whether containers run on it is unknown: {workload.reason}"
            lines.append(f"{name}: {reason}; run again, or pass --containers {name}")
    return lines


def counted_workloads(
    found: Mapping[str, NodeWorkload], affected: Collection[str], units: Collection[str]
) -> dict[str, NodeWorkload]:
    """Return what counts of workloads: of nodes that are not affected only their ranks of these units, which have one
    on a node that is.
    """
    return {
        name: workload
        if name in affected
        else replace(workload, containers=0, units=tuple(unit for unit in workload.units if unit in units))
        for name, workload in found.items()
    }


def unknown_units(
    rack: Rack, found: Mapping[str, NodeWorkload], units: Mapping[str, Collection[str]], named: Collection[str]
) -> list[str]:
    """Return why it is unknown whether units run, a line each. A unit runs on all its nodes or on none, so that one of
    them that answers, or is not in service, is enough.

    `units`: with all their nodes. `named`: nodes whose work may end.
    """
    lines = []
    for unit, nodes in units.items():
        silent = [node for node in nodes if found[node].reachability is NodeReachability.UNKNOWN]
        asked = [node for node in silent if node not in named]
        if asked and len(silent) == len(nodes):
            reasons = "; ".join(f"{node}: {found[node].reason}" for node in asked)
            options = " ".join(f"--containers {node}" for node in asked)
            unknown = f"whether {describe_unit(rack, unit)} runs is unknown: {reasons}"
            lines.append(f"{unknown}; run again, or pass {options}")
    return lines


def running_units(found: Mapping[str, NodeWorkload]) -> dict[str, tuple[str, ...]]:
    """Return the units that run, each with those of the asked nodes that run it."""
    names = dict.fromkeys(unit for workload in found.values() for unit in workload.units)
    return {name: tuple(node for node, workload in found.items() if name in workload.units) for name in names}


def unit_blockers(
    rack: Rack, running: Mapping[str, Collection[str]], *, stops: bool, offered: bool = True
) -> list[str]:
    """Return why these nodes may not be changed or restarted because of the units that run on them, a line each.

    `stops`: the operator has confirmed that declared units are stopped. `offered`: the command has --stop-units.
    """
    return [
        f"{describe_unit(rack, name)} runs on {', '.join(nodes)}; "
        + (
            f"pass --stop-units, which stops it on all its nodes first, or run {stop_command(rack, name)}"
            if declared and offered
            else f"run {stop_command(rack, name)} first"
        )
        for name, nodes in running.items()
        if not ((declared := bool(nodes_of_unit(rack, name))) and stops)
    ]

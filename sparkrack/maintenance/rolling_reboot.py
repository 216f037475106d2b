"""Sequence of `sparkrack reboot`: one node after the other, each verified before the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.model import Rack
from core.ssh.node_shells import open_shells
from core.ssh.own_node import own_node
from core.util.command_error import CommandError
from core.util.screen import Screen
from serving.options import served_units
from serving.running_engines import describe_unit
from sparkrack.engine.recorded_run import recorded_run
from sparkrack.engine.silences import silenced, silences_of_nodes
from sparkrack.engine.ssh_locking import hold_lock
from sparkrack.rebuild.restart import NodeRestart
from sparkrack.rebuild.workloads import CONTAINERS, query_workloads, running_units, unit_blockers
from sparkrack.serving import recreation
from sparkrack.serving.unit_run import UnitRun

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
PROVE_SECONDS = 900
"""Seconds for which alerts of a node that is back are silent at most, until it is proven."""


Screens = Callable[[], AbstractContextManager[Screen]]
"""Opens the terminal of one step."""


@dataclass(frozen=True)
class NodeFault:
    """The node that ended a rolling reboot, and why."""

    node: str
    reason: str


def stop_units(
    rack: Rack, names: Sequence[str], stop: Callable[[str], bool], say: Callable[[str], None], *, confirmed: bool
) -> tuple[str, ...]:
    """Stop the units that run on these nodes, and return them. `stop`: stops a unit, and returns whether every rank is
    confirmed as stopped. Raises CommandError when a unit runs and that is not `confirmed`, or a unit does not stop.
    """
    if not served_units(rack):
        return ()
    units = running_units(query_workloads(rack, names, CONTAINERS))
    if lines := unit_blockers(rack, units, stops=confirmed):
        raise CommandError("\n".join((*lines, "nothing was restarted")))
    for unit in units:
        say(f"{describe_unit(rack, unit)} is stopped on all its nodes for the restart")
        if not stop(unit):
            raise CommandError(f"unit {unit} is not confirmed as stopped; nothing was restarted")
    return tuple(units)


def stop_unit(file: Path, screens: Screens, name: str) -> bool:
    """Stop a unit, and return whether every rank is confirmed as stopped."""
    with screens() as screen:
        work = UnitRun(file, name, screen)
        return work.attempt(partial(work.locked, "stop", work.stop))


def start_stopped(rack: Rack, file: Path, units: Sequence[str], screens: Screens, say: Callable[[str], None]) -> bool:
    """Start the stopped units that rack.yaml declares as up; return whether a completion has proven each."""
    down = [unit for unit in units if served_units(rack)[unit].state == "down"]
    for unit in down:
        say(f"unit {unit} stays down, as rack.yaml declares it")
    started = []
    for unit in units:
        if unit not in down:
            with screens() as screen:
                work = UnitRun(file, unit, screen)
                start = work.start(anyway=False, timeout=None, patience=recreation.COORDINATOR_SECONDS)
                started.append(work.attempt(partial(work.locked, "start", start)))
    return all(started)


def restart_order(rack: Rack, names: Sequence[str]) -> tuple[list[str], str | None]:
    """Return nodes in the order of their restarts, and the one that is this machine, if any, which is the last."""
    with open_shells(rack, names, ANSWER_SECONDS) as shells:
        own = own_node(shells)
    return [*(name for name in names if name != own), *([own] if own else [])], own


def reboot_nodes(
    rack: Rack,
    names: Sequence[str],
    checks: Sequence[Path],
    screen: Screen,
    *,
    timeout: int,
    containers: bool,
    this_machine: str | None = None,
) -> NodeFault | None:
    """Restart nodes one after the other; return the fault that ended it, if any. `checks`: the files that prove a node.
    `timeout`: seconds that a node may take. `containers`: whether containers may end. `this_machine`: the last node, if
    this process runs on it, and ends with it. Raises CommandError.
    """
    with recorded_run(rack, "reboot: Restart the node") as run:
        own = run.begin(f"restart of {', '.join(names)}")
        screen.phase("take the lock of the rack")
        with open_shells(rack, names, ANSWER_SECONDS) as shells:
            with hold_lock(rack, own, screen.warn) as held:
                for done, name in enumerate(names):
                    screen.phase(f"restart node {done + 1} of {len(names)}", [name])
                    one = NodeRestart(rack, name, shells[name], checks, screen, screen.say)
                    sure = partial(held.check_before_restart, name)
                    if name == this_machine:
                        fault = one.check_own(sure, containers=containers)
                    else:
                        silences = silences_of_nodes(rack, [name])
                        seconds = timeout + PROVE_SECONDS
                        with silenced(rack, own.id, f"restart of {name}", silences, seconds, screen.warn):
                            fault = one.run(timeout, sure, containers=containers)
                    if fault:
                        run.fail(name, fault)
                        screen.warn(f"{name}: {fault}")
                        left = ", ".join(names[done + 1 :]) or "none"
                        screen.say(f"{done} of {len(names)} nodes restarted and proven; not touched: {left}")
                        return NodeFault(name, fault)
                    if name == held.head and name != this_machine:
                        screen.phase("take the lock of the rack again")
                        held.take()
            if this_machine is None:
                return None
            # The lock is given back before: nothing could do so after the restart.
            screen.say(f"{this_machine} is this machine: this command ends with its restart")
            fault = NodeRestart(rack, this_machine, shells[this_machine], checks, screen, screen.say).restart_own()
        run.fail(this_machine, fault)
        screen.warn(f"{this_machine}: {fault}")
        return NodeFault(this_machine, fault)

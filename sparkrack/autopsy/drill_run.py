"""Sequence of `sparkrack drill`: the drill under the lock of the rack, and its stored result."""

from __future__ import annotations

from functools import partial

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from core.util.paths import state_folder
from core.util.screen import Screen
from roles.blackbox.stream_routes import receiver
from sparkrack.autopsy.drill import Drill, DrillError, DrillProgress
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.recorded_run import RecordedRun, recorded_run
from sparkrack.engine.silences import silenced, silences_of_nodes
from sparkrack.engine.ssh_locking import hold_lock
from sparkrack.status.drills import DrillLevel, DrillResult, store_drill

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
JUDGE_SECONDS = 900
"""Seconds for which alerts of a node that is back are silent at most, until the end of its boot is judged."""


def run_drill(rack: Rack, node: str, level: DrillLevel, timeout: int, screen: Screen) -> tuple[DrillResult, str]:
    """Run a drill; return its result, and why that could not be stored. `timeout`: seconds that the node may take.
    Raises CommandError when it is refused or fails.
    """
    progress = DrillProgress()
    with recorded_run(rack, f"drill: {level}") as run:
        try:
            result, unkept = _run_locked_drill(rack, node, level, timeout, run, screen, progress)
        except (DrillError, UnreachableError) as fault:
            why = printable_line(fault.why if isinstance(fault, UnreachableError) else str(fault))
            why = f"{why}; {progress.done}"
            run.fail(node, why)
            raise CommandError(f"{node}: {why}") from None
        if not result.passed:
            run.fail(node, result.reason)
    return result, unkept


def _run_locked_drill(
    rack: Rack,
    node: str,
    level: DrillLevel,
    timeout: int,
    run: RecordedRun,
    screen: Screen,
    progress: DrillProgress,
) -> tuple[DrillResult, str]:
    """Run the drill under the lock of the rack, and store its result before the lock is released: a problem with the
    lock is a warning then. Returns the result, and why it could not be stored. Raises DrillError when it is refused or
    fails.
    """
    own = run.begin(f"drill {level} of {node}")
    peer = receiver(rack, rack.nodes[node])
    names = [node, *([peer.name] if peer else [])]
    result, unkept = None, ""
    screen.phase("take the lock of the rack")
    try:
        with open_shells(rack, names, ANSWER_SECONDS) as shells, hold_lock(rack, own, screen.warn) as held:
            there = shells[peer.name] if peer else None
            one = Drill(rack, node, level, own.id, shells[node], there, screen.say, timeout, progress)
            screen.phase(f"drill {level}", [node])
            one.refuse()
            if level is DrillLevel.MARK:
                result = one.mark()
            else:
                silences, seconds = silences_of_nodes(rack, [node]), timeout + JUDGE_SECONDS
                with silenced(rack, own.id, f"drill {level} of {node}", silences, seconds, screen.warn):
                    result = one.end(partial(held.check_before_restart, node), partial(_take_again, held, node, screen))
            try:
                store_drill(state_folder(rack.rack), result)
            except OSError as fault:
                unkept = str(fault)
    except CommandError as fault:
        if result is None:
            raise
        screen.warn(str(fault))
    return result, unkept


def _take_again(held: RackLock, node: str, screen: Screen) -> None:
    """Take the lock again when the head node is back. Another run may have taken it meanwhile, and keeps it then."""
    if node != held.head:
        return
    screen.phase("take the lock of the rack again")
    try:
        held.take()
    except CommandError as fault:
        screen.warn(f"{node}: the lock of the rack was not taken again after the restart: {fault!s}")

"""`sparkrack drill`: end a node's boot on purpose, and prove that the black box sees it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from core.model import Rack, load
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from core.util.paths import state_folder
from roles.blackbox.receivers import receiver
from sparkrack.autopsy.drill import EFFECTS, Drill, DrillError, DrillProgress
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import nodes, rack_option
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.watch_delivery import deliver_drills
from sparkrack.engine.recorded_run import RecordedRun, recorded_run
from sparkrack.engine.ssh_locking import RackLock, hold_lock
from sparkrack.status.drills import DrillLevel, DrillResult, store_drill
from sparkrack.watch.silences import silenced, silences_of_nodes

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
JUDGE_SECONDS = 900
"""Seconds for which alerts of a node that is back are silent at most, until the end of its boot is judged."""


@click.command()
@click.argument("node", metavar="NODE", shell_complete=nodes)
@rack_option
@click.option(
    "--level",
    type=click.Choice([str(level) for level in DrillLevel]),
    required=True,
    help="What happens to the node.",
)
@click.option("--yes-really", "confirmed", metavar="NODE", help="Confirm that this node may end now; not for mark.")
@click.option(
    "--timeout", type=click.IntRange(1), default=1800, show_default=True, help="Seconds that the node may take."
)
def drill(node: str, rack: Path, level: str, confirmed: str | None, timeout: int) -> None:
    """End the boot of NODE on purpose, wait for the next one, and let `sparkrack autopsy` judge the end.

    \b
      mark    a line to the kernel log and the journal, and where it arrives; nothing ends
      freeze  systemd stops: the watchdog has to reset the node
      panic   the kernel panics: its record has to be found
      reset   a restart without a shutdown: it has to be seen as such

    It refuses while a container or a unit runs on the node, or another run holds the rack. The result is stored on this
    machine, where `sparkrack status` has its age, and its metrics on the server of the section `watch`.
    Exit 0 when the chain worked, 2 when it did not, 1 when it was refused or failed: the output says what was done.
    """
    found = load(rack)
    if node not in found.nodes:
        raise CommandError(f"{node}: not a node; there are {', '.join(found.nodes)}")
    kind = DrillLevel(level)
    if kind is not DrillLevel.MARK and confirmed != node:
        what = f"--level {kind} on {node} {EFFECTS[kind]}"
        raise CommandError(f"{what}; pass --yes-really {node} to do it. Nothing was done")
    progress = DrillProgress()
    with recorded_run(found, f"drill: {level}") as run, show_progress(silent=False) as screen:
        try:
            result, unkept = _drilled(found, node, kind, timeout, run, screen, progress)
        except (DrillError, UnreachableError) as fault:
            why = printable_line(fault.why if isinstance(fault, UnreachableError) else str(fault))
            why = f"{why}; {progress.done}"
            run.fail(node, why)
            raise CommandError(f"{node}: {why}") from None
        if not result.passed:
            run.fail(node, result.reason)
    click.echo(f"{node}: drill {level} {'passed' if result.passed else 'failed'}: {result.reason}")
    if unkept:
        raise CommandError(f"the result of the drill could not be kept: {unkept}")
    deliver_drills(found, [result])
    then = ["status"] if kind is DrillLevel.MARK or result.verdict is None else ["autopsy", node]
    next_step(["sparkrack", *then], rack=rack)
    sys.exit(0 if result.passed else 2)


def _drilled(
    rack: Rack,
    node: str,
    level: DrillLevel,
    timeout: int,
    run: RecordedRun,
    screen: ProgressDisplay,
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
                    result = one.end(partial(_check, held, node), partial(_take_again, held, node, screen))
            try:
                store_drill(state_folder(rack.rack), result)
            except OSError as fault:
                unkept = str(fault)
    except CommandError as fault:
        if result is None:
            raise
        screen.warn(str(fault))
    return result, unkept


def _check(held: RackLock, node: str) -> None:
    """Make sure of the lock before the node ends; with the head node it goes. Raises CommandError."""
    held.check()
    if node == held.head:
        held.restarts()


def _take_again(held: RackLock, node: str, screen: ProgressDisplay) -> None:
    """Take the lock again when the head node is back. Another run may have taken it meanwhile, and keeps it then."""
    if node != held.head:
        return
    screen.phase("take the lock of the rack again")
    try:
        held.take()
    except CommandError as fault:
        screen.warn(f"{node}: the lock of the rack was not taken again after the restart: {fault!s}")

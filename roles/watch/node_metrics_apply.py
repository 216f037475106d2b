"""Have a node export what it knows of itself: boots, the black box, streams, measurements, models."""

from __future__ import annotations

from posixpath import dirname

from core.ops import remote_files
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted
from roles.watch import node_metrics
from roles.watch.facts import WatchFacts


@managed_operation("watch", WatchFacts)
def export_node_metrics(facts: WatchFacts) -> Changeset:
    """Write the program and its units, and run the timer."""
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    now, timer = facts.metrics_state, node_metrics.TIMER
    stale = managed_file.differing(node_metrics.files(facts.rack), facts.metrics_files)
    unit = now.units[timer]
    renew = bool(stale) or now.pending or any(one.reload for one in now.units.values())
    start = renew or unit.active != "active"
    masked, enable = unit.masked, not unit.enabled
    if not (start or enable):
        return Changeset(in_sync_reason="the node exports what it knows of itself")
    events = managed_file.changes(stale, facts.metrics_files)
    events += acted(Action.UNMASK, timer) if masked else ()
    events += acted(Action.ENABLE, timer) if enable else ()
    if start:
        why = "systemd has not read its files" if renew and not stale else None
        action = Action.RESTART if unit.active == "active" else Action.START
        events.append(Event(EventKind.RESTART, subject=timer, action=action, detail=why))
    commands = []
    if renew:
        commands.append(sudo_script(f"umask 077; mkdir -p {dirname(node_metrics.MARK)}; : > {node_metrics.MARK}"))
    if stale:
        folders = sorted({dirname(file.path) for file in stale})
        commands.append(sudo_script(f"umask 022; mkdir -p {quote(*folders)}"))
        commands += [remote_files.put_managed(file) for file in stale]
    steps = [f"systemctl unmask --quiet {timer}"] if masked else []
    steps += ["systemctl daemon-reload"] if renew else []
    steps += [f"systemctl enable --quiet {timer}"] if enable else []
    # The service at once as well: the timer may have just run it, with the program as it was.
    steps += [f"systemctl restart {timer}", f"systemctl start {node_metrics.SERVICE}"] if start else []
    steps += [f"rm -f {node_metrics.MARK}"] if renew else []
    return Changeset(events=tuple(events), commands=(*commands, sudo_script("; ".join(steps))))

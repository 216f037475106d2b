"""`sparkrack remove`: take sparkrack off the rack; what was there before comes back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from core.model import Rack
from core.model.selection import Selection, select
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import (
    exclude_option,
    json_option,
    limit_option,
    no_lock_option,
    no_nodes_option,
    quiet_option,
    rack_option,
)
from sparkrack.engine.render_plan import show_plan
from sparkrack.maintenance.switch_restore import RestoreOptions, RestoreResult, restore_first
from sparkrack.terminal.apply_screen import ApplyTerminal
from sparkrack.terminal.progress import show_progress
from sparkrack.terminal.prompts import has_terminal, require_terminal
from sparkrack.terminal.startup_notice import loading
from switch.wait_for_links import SETTLE_SECONDS

DIFFERS = 2
"""Exit code of --dry when anything would be changed."""


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option("--dry", is_flag=True, help="Only show what would be changed. Exit 2 when anything would.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@no_nodes_option("Do not ask the nodes whether units run there before links of a switch go down.")
@no_lock_option
@json_option
@quiet_option
def remove(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    dry: bool,
    yes: bool,
    no_nodes: bool,
    no_lock: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take sparkrack off: what is ours goes, what was there before the first apply comes back.

    \b
      sparkrack remove --dry              shows it and changes nothing
      sparkrack remove --limit spark3     one node; the switch is left alone
      sparkrack remove -y                 all nodes, then each switch

    Node after node, with the guards of apply: the lock of the rack, a journal, a change of the network that the node
    reverts unless it is confirmed, the first failure ends the run. Refused while a served unit or a container runs.
    Models, images, records of the black box and the login of the operator stay, and are named. A switch gets back the
    backup that the first apply kept. What was not recorded is reported as unknown, and kept.
    Exit 0 when nothing of sparkrack is left but that, else 1.
    """
    if not (yes or dry):
        require_terminal("pass -y, or --dry to see what would be changed")
    with loading():
        from core.model import load

    found = load(rack)
    whole = select(found, limit, exclude)
    nodes = tuple(name for name in whole.machines if name in found.nodes)
    # A pattern that matches a switch by name, or nothing that leaves it out.
    switches = [name for name in whole.machines if name in found.switches]
    silent = quiet or as_json
    given: dict[str, Any] = {"rack": rack, "limit": limit, "exclude": exclude, "silent": silent}
    code = 0
    if nodes:
        selection = replace(whole, machines=nodes, removes=True)
        code = _from_nodes(found, rack, selection, given, dry=dry, yes=yes, no_lock=no_lock, quiet=quiet, json=as_json)
    if code in (0, DIFFERS):
        options = RestoreOptions(
            settle=SETTLE_SECONDS, wait=False, dry=dry, yes=yes, no_nodes=no_nodes, no_lock=no_lock
        )
        with show_progress(silent=silent) as screen:
            results = [restore_first(found, found.switches[name], options, screen, err=silent) for name in switches]
        codes = {RestoreResult.DIFFERS: DIFFERS, RestoreResult.FAILED: 1}
        code = max((code, *(codes.get(result, 0) for result in results)), key=(0, DIFFERS, 1).index)
    if dry:
        next_step(["sparkrack", "remove"], **given)
    elif code == 0 and limit:
        next_step(["sparkrack", "apply"], "when it is out of rack.yaml, for the others", rack=rack, silent=silent)
    elif code == 0:
        next_step(["sparkrack", "apply"], "to bring it back", **given)
    else:
        next_step(["sparkrack", "remove"], "when this is fixed", **given)
    sys.exit(code)


def _from_nodes(
    rack: Rack,
    file: Path,
    selection: Selection,
    given: dict[str, Any],
    *,
    dry: bool,
    yes: bool,
    no_lock: bool,
    quiet: bool,
    json: bool,
) -> int:
    """Take sparkrack off the selected nodes; return the exit code."""
    with loading():
        # Importing pyinfra replaces parts of the standard library, so only the run itself does.
        from sparkrack.engine.evaluated import evaluated
        from sparkrack.maintenance.apply_run import ApplyRun

    if dry:
        with show_progress(silent=json or quiet) as progress, evaluated(rack, file, selection, progress) as run:
            made = run.plan
        if json:
            click.echo(made.model_dump_json(by_alias=True, indent=1))
        else:
            show_plan(made, quiet=quiet)
        return made.code
    reason = "when the reasons above are fixed"
    screen = ApplyTerminal(
        quiet=quiet, as_json=json, show_next=lambda _: next_step(["sparkrack", "remove"], reason, **given)
    )
    work = ApplyRun(rack, file, selection, screen, no_nodes=False, no_lock=no_lock, terminal=has_terminal() and not yes)
    done = work.run(None, ask=not yes)
    screen.report(done)
    return done.code

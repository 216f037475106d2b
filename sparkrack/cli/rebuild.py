"""`sparkrack rebuild`: from factory state to a verified rack, as one command that can be interrupted and resumed
anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from core.model.selection import SelectionError, select_nodes
from sparkrack.cli.next_step import next_step, print_next
from sparkrack.cli.options import json_option, node_patterns, rack_option, switches
from sparkrack.cli.rebuild_options import absent_option, forwarded_options, print_report
from sparkrack.maintenance.rebuild_run import rebuild_hosts
from sparkrack.rebuild.model import RequestError, requested
from sparkrack.rebuild.phase_commands import ForwardedOptions, units_to_start
from sparkrack.terminal.progress import show_progress


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=node_patterns)
@click.option(
    "--switch",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    shell_complete=switches,
    help="The switch instead of nodes.",
)
@click.option("--all", "whole", is_flag=True, help="Every node and switch.")
@rack_option
@absent_option
@click.option(
    "--containers",
    multiple=True,
    metavar="NODE",
    shell_complete=node_patterns,
    help="Allow to end the containers of this node, or these by a glob or the group nodes; may be given again.",
)
@click.option(
    "--stop-units",
    is_flag=True,
    help="Stop the units that run on these nodes first, on all their nodes; start those with state: up at the end.",
)
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier one was interrupted.")
@forwarded_options(returned=True)
@json_option
def rebuild(
    names: tuple[str, ...],
    switch: str | None,
    whole: bool,
    rack: Path,
    exclude: tuple[str, ...],
    containers: tuple[str, ...],
    stop_units: bool,
    fresh: bool,
    as_json: bool,
    forwarded: ForwardedOptions,
) -> None:
    """Bring machines from factory state to a verified part of the rack: wait, bootstrap, apply, reboot, start, verify.

    \b
      sparkrack rebuild --all
      sparkrack rebuild spark2 --replace-host-key
      sparkrack rebuild --switch --replace-fingerprint

    Each phase is recorded before it begins; the same command resumes in the phase that was interrupted. A machine is
    restarted only when a reboot is pending. Refuses, before anything, when containers run on a node that would be
    touched, or that is cabled to a switch that would be, unless --containers names it; and when a unit of an inference
    engine runs there, unless --stop-units is given. Before verify, units with state: up are started and proven by a
    completion. Exit 0 when everything is done and verified.
    """
    found = load(rack)
    try:
        request = requested(found, rack, names, switch, whole, exclude)
    except RequestError as fault:
        raise click.UsageError(str(fault)) from None
    request = request.model_copy(update={"units": units_to_start(found, request)})
    if forwarded.packages and not request.switches:
        raise click.UsageError("--packages is for a switch, and none is rebuilt")
    try:
        containers = select_nodes(found, containers, "--containers") if containers else ()
    except SelectionError as fault:
        raise click.UsageError(str(fault)) from None
    with show_progress(silent=as_json) as screen:
        report = rebuild_hosts(
            found,
            request,
            forwarded,
            containers,
            stop_units,
            screen,
            timeout=forwarded.wait,
            fresh=fresh,
            as_json=as_json,
        )
    print_report(report, as_json=as_json)
    if report.again:
        print_next(report.again, "to resume", silent=as_json)
    else:
        next_step(["sparkrack", "status"], rack=Path(report.file), silent=as_json)
    sys.exit(report.code)

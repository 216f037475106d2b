"""`sparkrack autopsy`: why the latest boot of a node ended. Nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from core.util.command_error import CommandError
from sparkrack.autopsy.bundle import write_archive
from sparkrack.autopsy.collect import collect_evidence
from sparkrack.autopsy.model import AutopsyReport
from sparkrack.autopsy.render import lines, summary
from sparkrack.autopsy.report import report_of
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, nodes, quiet_option, rack_option
from sparkrack.terminal.progress import show_progress


@click.command()
@click.argument("node", metavar="NODE", shell_complete=nodes)
@rack_option
@click.option(
    "--collect",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write an archive of the evidence into FOLDER, too.",
)
@json_option
@quiet_option
def autopsy(node: str, rack: Path, collect: Path | None, as_json: bool, quiet: bool) -> None:
    """Say why the latest boot of NODE ended: planned, panic, watchdog, memory_wedge, power, freeze, or unknown.

    \b
      sparkrack autopsy spark3
      sparkrack autopsy spark3 --collect .
      sparkrack autopsy spark3 --json | jq -r '.verdict, .reason'

    It asks the node if it answers, the node that receives its records, and the switch; of a node that does not answer
    other nodes, too, over the fabric. It works while the node is dead. A source that is missing is named. The times are
    those of this machine; the difference of each clock is shown.

    Exit 0 when the end was planned, 2 when it was not, 1 when the cause is unknown.
    """
    found = load(rack)
    if node not in found.nodes:
        raise CommandError(f"{node}: not a node; there are {', '.join(found.nodes)}")
    with show_progress(silent=as_json or quiet) as progress:
        evidence = collect_evidence(found, node, progress)
        report = report_of(found, evidence)
        if collect:
            progress.phase("write the archive", [node])
            archive = write_archive(found, evidence, report, collect)
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=1))
    else:
        for line in [summary(report)] if quiet else lines(report):
            click.echo(line)
    if collect:
        click.echo(f"{archive}; read it before you send it", err=True)
    next_step(["sparkrack", *_following_command(report)], rack=rack, silent=as_json or quiet)
    sys.exit(report.code)


def _following_command(report: AutopsyReport) -> list[str]:
    """Return the command that follows: all ranks of a unit restart after an unplanned end of one."""
    if report.units and report.alive:
        nodes = dict.fromkeys(name for unit in report.units for name in unit.nodes)
        return ["reboot", *(word for name in nodes for word in ("--limit", name))]
    return ["status"]

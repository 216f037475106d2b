"""`sparkrack topology`: what is cabled to what, as a picture; with --seen, compared with what is there."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from core.model import load
from core.model.selection import select
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, patterns, quiet_option, rack_option
from sparkrack.terminal.progress import show_progress
from sparkrack.topology import render_mermaid, render_svg, render_text
from sparkrack.topology.build import draw
from sparkrack.topology.collect import collect_observations
from sparkrack.topology.model import Topology


@click.command()
@rack_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "svg"]),
    help="Text (the default), a Mermaid flowchart for Markdown, or SVG, which Graphviz lays out.",
)
@json_option
@click.option("--seen", is_flag=True, help="Ask nodes and switches, and mark what is not as declared.")
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME",
    shell_complete=patterns,
    help="Only the cables of this host, or these by a glob or a group (nodes, switches); may be given again.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a file.")
@quiet_option
def topology(
    rack: Path, form: str | None, as_json: bool, seen: bool, limit: tuple[str, ...], out: Path | None, quiet: bool
) -> None:
    """Draw nodes, halves, cages, legs and cables, with their lanes, speeds, addresses and MTU.

    Without --seen nothing is connected to. With it, exit 2 when something is not as declared, and 1 when anything
    could not be asked; the picture marks both.

    \b
      sparkrack topology
      sparkrack topology --seen --limit spark3
      sparkrack topology --format svg --out rack.svg
    """
    if as_json and form:
        raise CommandError("--json and --format are two formats; pass one of them")
    if quiet and (out or form not in (None, "text")):
        raise CommandError("--quiet is for the text on the screen; omit --format and --out")
    found = load(rack)
    machines = select(found, limit).machines
    observations = None
    if seen:
        with show_progress(silent=as_json or quiet) as progress:
            observations = collect_observations(found, machines, progress=progress)
    picture = draw(found, observations, machines)
    _show_topology(picture, "json" if as_json else form or "text", out, quiet=quiet)
    command = ["sparkrack", "drift"] if seen else ["sparkrack", "topology", "--seen"]
    next_step(command, rack=rack, limit=limit, silent=as_json or quiet)
    sys.exit(picture.exit)


def _show_topology(picture: Topology, form: str, out: Path | None, *, quiet: bool) -> None:
    if form == "text" and out is None:
        render_text.render(picture, Console(highlight=False), quiet=quiet)
        return
    written = {
        "text": render_text.plain,
        "json": Topology.json_text,
        "mermaid": render_mermaid.render,
        "svg": render_svg.render,
    }[form](picture)
    if out is None:
        click.echo(written, nl=False)
        return
    try:
        write_atomic(out, written, 0o644)
    except OSError as fault:
        raise CommandError(f"{out}: cannot be written: {fault.strerror}") from None

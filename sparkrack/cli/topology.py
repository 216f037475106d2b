"""`sparkrack topology`: what is cabled to what, as a picture; with --seen, compared with what is there."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
from rich.console import Console

from sparkrack.cli.machines import machines
from sparkrack.cli.options import json_option
from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import load
from sparkrack.fleet.selection import SelectionError, select
from sparkrack.run.files import keep
from sparkrack.topology import mermaid, svg, text
from sparkrack.topology.model import Picture
from sparkrack.topology.picture import draw

WIDTH = 100
"""Columns of a text that is written to a file."""


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
    shell_complete=machines,
    help="Only the cables of this machine; may be given again.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to a file.")
def topology(rack: Path, form: str | None, as_json: bool, seen: bool, limit: tuple[str, ...], out: Path | None) -> None:
    """Draw nodes, halves, cages, legs and cables, with their lanes, speeds, addresses and MTU.

    Without --seen nothing is connected to. With it, exit 2 when something is not as declared, and 1 when anything
    could not be asked; the picture marks both.

    \b
      sparkrack topology
      sparkrack topology --seen --limit spark3
      sparkrack topology --format svg --out rack.svg
    """
    if as_json and form:
        raise click.ClickException("--json and --format are two formats; say one of them")
    found = load(rack)
    try:
        machines = select(found, limit).machines
    except SelectionError as fault:
        raise click.ClickException(str(fault)) from None
    said = None
    if seen:
        from sparkrack.cli.seeing import see  # brings pytest and requests along, which a drawing does not need

        said = see(found, machines)
    picture = draw(found, said, machines)
    try:
        _show(picture, "json" if as_json else form or "text", out)
    except svg.DrawingError as fault:
        raise click.ClickException(str(fault)) from None
    sys.exit(code(picture))


def code(picture: Picture) -> int:
    """The exit code: 1 when anything is unknown, whatever else is found, 2 for a mismatch, else 0."""
    if any(edge.unknown for edge in picture.edges):
        return 1
    return 2 if picture.count("mismatch") else 0


def _show(picture: Picture, form: str, out: Path | None) -> None:
    if form == "text" and out is None:
        Console(highlight=False).print(text.render(picture))
        return
    written = {"text": plain, "json": Picture.json_text, "mermaid": mermaid.render, "svg": svg.render}[form](picture)
    if out is None:
        click.echo(written, nl=False)
        return
    try:
        keep(out, written, 0o644)
    except OSError as fault:
        raise click.ClickException(f"{out}: cannot be written: {fault.strerror}") from None


def plain(picture: Picture) -> str:
    """The text of a picture without colours, at most WIDTH columns wide."""
    paper = io.StringIO()
    Console(file=paper, width=WIDTH, highlight=False, color_system=None).print(text.render(picture))
    return "".join(f"{line.rstrip()}\n" for line in paper.getvalue().splitlines())

"""`sparkrack serve logs`: the journals of all ranks of a unit, with its coordinator and agents, in one stream."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from core.model import SecretError, load
from core.model.errors import printable_line
from core.model.fields import seconds
from serving.options import select_unit
from sparkrack.cli.options import rack_option, unit_argument
from sparkrack.serving.unit_journals import UnitJournals


class _Since(click.ParamType[int]):
    """A duration, as rack.yaml writes it; its value is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return seconds(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a whole number of s, m or h, such as 30m", param, ctx)


@click.command()
@unit_argument
@click.option("--rank", type=click.IntRange(0), metavar="NUMBER", help="Only this rank; 0 is the head.")
@click.option(
    "--since", type=_Since(), default="1h", show_default=True, metavar="DURATION", help="From so long ago on."
)
@click.option("--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@rack_option
def logs(unit: str, rank: int | None, since: int, follow: bool, rack: Path) -> None:
    """Print the journals of all ranks of a unit, of their agents and of the coordinator, ordered by time.

    \b
      sparkrack serve logs qwen --since 10m
      sparkrack serve logs qwen --rank 1 --follow

    Each line has its time (UTC), node and rank, and its program: engine, agent, coordinator, or systemd about one of
    them. Control characters are printed as escapes; secrets are replaced by ***. With --follow, lines of different
    nodes are ordered within a second.

    Exit 0, or 1 when a node gives no journal: the others are printed.
    """
    found = load(rack)
    chosen = select_unit(found, unit)
    nodes = chosen.ranks(found.nodes)
    if rank is not None and rank >= len(nodes):
        raise click.ClickException(f"unit {unit} has no rank {rank}; its ranks are 0 to {len(nodes) - 1}")
    if chosen.api.key:
        try:
            chosen.api.key.resolve()  # from now on it is replaced wherever it is printed
        except SecretError as fault:
            click.echo(
                printable_line(f"warning: the API key is not known here, so it is not removed: {fault}"), err=True
            )
    numbers = range(len(nodes)) if rank is None else [rank]
    warn = partial(click.echo, err=True)
    with UnitJournals(found, chosen, numbers, since, warn, follow=follow) as journals:
        try:
            for line in journals.lines():
                click.echo(line)
        except KeyboardInterrupt:
            if not follow:
                raise
    sys.exit(1 if journals.failed else 0)

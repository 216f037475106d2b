"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from sparkrack.fleet import RackError, load, rack_path
from sparkrack.fleet.selection import ROLES

_Command = Callable[..., Any]


def machines(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes and switches that a shell may complete to; none when the rack file cannot be used."""
    try:
        rack = load(ctx.params.get("rack") or rack_path())
    except (RackError, OSError):
        return []
    return [name for name in (*rack.nodes, *rack.switches) if name.startswith(incomplete)]


_NAMED: Mapping[str, Any] = {"multiple": True, "metavar": "NAME", "shell_complete": machines}


def selection_options(command: _Command) -> _Command:
    """--limit, --exclude and --only."""
    for option in (
        click.option("--only", multiple=True, type=click.Choice(ROLES), help="Only this role; may be given again."),
        click.option("--exclude", **_NAMED, help="Not this node or switch; may be given again."),
        click.option("--limit", **_NAMED, help="Only this node or switch; may be given again."),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead; see docs/reference/json.md.")
quiet_option = click.option("--quiet", is_flag=True, help="Only the last line, and what is wrong.")

"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from sparkrack.cli.machines import machines
from sparkrack.fleet.selection import ROLES

_Command = Callable[..., Any]

_NAMED: Mapping[str, Any] = {"multiple": True, "metavar": "NAME", "shell_complete": machines}

limit_option = click.option("--limit", **_NAMED, help="Only this node or switch; may be given again.")
exclude_option = click.option("--exclude", **_NAMED, help="Not this node or switch; may be given again.")


def selection_options(command: _Command) -> _Command:
    """--limit, --exclude and --only."""
    for option in (
        click.option("--only", multiple=True, type=click.Choice(ROLES), help="Only this role; may be given again."),
        exclude_option,
        limit_option,
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead; see docs/reference/json.md.")
quiet_option = click.option("--quiet", is_flag=True, help="Only the last line, and what is wrong.")

"""What `rebuild` and `up` share on the command line: the options that bootstrap gets, and the report at their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from sparkrack.cli.options import password_options, patterns
from sparkrack.rebuild.model import RebuildReport
from sparkrack.rebuild.phase_commands import DEFAULT_WAIT_SECONDS, ForwardedOptions
from sparkrack.rebuild.render import show
from switch.bootstrap.menus import FACTORY_USER

_Command = Callable[..., Any]

_OPTIONS: tuple[Callable[[_Command], _Command], ...] = (
    click.option("--as", "login", metavar="USER", help="As `bootstrap nodes --as`."),
    password_options("node-", "that account's"),
    click.option("--host-keys", metavar="FILE", help="As `bootstrap nodes --host-keys`."),
    click.option("--replace-host-key", is_flag=True, help="As `bootstrap nodes --replace-host-key`."),
    password_options("switch-", f"{FACTORY_USER}'s"),
    click.option("--switch-address", metavar="ADDRESS", help="As `bootstrap switch --address`."),
    click.option("--replace-fingerprint", is_flag=True, help="As `bootstrap switch --replace-fingerprint`."),
    click.option(
        "--packages",
        type=click.Path(path_type=Path, readable=False),
        callback=lambda _ctx, _param, folder: str(folder.expanduser().absolute()) if folder else None,
        metavar="FOLDER",
        help="As `upgrade switch --packages`: upgrade the switch first.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, 600),
        help=f"Seconds to wait for the machines; passed on to bootstrap when given.  [default: {DEFAULT_WAIT_SECONDS}]",
    ),
)
_FOR_RETURNED = (3, 6, 7)
"""Places of the options for machines that the rack had before."""

absent_option = click.option(
    "--exclude",
    multiple=True,
    metavar="NAME",
    shell_complete=patterns,
    help="Leave out this host, which is absent, or these by a glob or a group (nodes, switches); may be given again.",
)


def forwarded_options(*, returned: bool) -> Callable[[_Command], _Command]:
    """Add the options that bootstrap gets to a command, and give it one argument for all: `forwarded`. `returned`: also
    those for machines that the rack had before.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def wrapped(*args: Any, **given: Any) -> Any:
            taken = {field.name: given.pop(field.name) for field in fields(ForwardedOptions) if field.name in given}
            return command(*args, **given, forwarded=ForwardedOptions(**taken))

        decorated: _Command = wrapped
        for place, option in reversed([*enumerate(_OPTIONS)]):
            if returned or place not in _FOR_RETURNED:
                decorated = option(decorated)
        return decorated

    return decorate


def print_report(report: RebuildReport, *, as_json: bool) -> None:
    """Print what was done in each phase."""
    show(report, Console(highlight=False, markup=False, soft_wrap=True, stderr=as_json))
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=1))

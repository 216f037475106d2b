"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from core.model import ConfigError, Rack, SecretRef, Switch, load, rack_path
from core.model.selection import GROUPS, ROLES
from serving.options import served_units


def machines(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes and switches of the rack that the command line is about."""
    found = _of_rack(ctx, incomplete)
    return [*found[0], *found[1]]


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of nodes only."""
    return _of_rack(ctx, incomplete)[0]


def switches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of switches only."""
    return _of_rack(ctx, incomplete)[1]


def patterns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of hosts and the groups that have any."""
    return [*machines(ctx, param, incomplete), *_complete_groups(incomplete, _of_rack(ctx, ""))]


def node_patterns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of nodes and their group."""
    return [*nodes(ctx, param, incomplete), *_complete_groups(incomplete, (_of_rack(ctx, "")[0], []))]


def units(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of served units."""
    try:
        found = served_units(load(ctx.params.get("rack") or rack_path()))
    except (ConfigError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


unit_argument = click.argument("unit", metavar="UNIT", shell_complete=units)


def _complete_groups(incomplete: str, hosts: tuple[list[str], list[str]]) -> list[str]:
    return [name for name, of in zip(GROUPS, hosts, strict=True) if of and name.startswith(incomplete)]


def starting(file: Path, incomplete: str) -> tuple[list[str], list[str]]:
    """The nodes and the switches whose names start so; none when the rack file cannot be used."""
    try:
        rack = load(file)
    except (ConfigError, OSError):
        return [], []
    found = ([name for name in kind if name.startswith(incomplete)] for kind in (rack.nodes, rack.switches))
    return next(found), next(found)


def _of_rack(ctx: click.Context, incomplete: str) -> tuple[list[str], list[str]]:
    try:
        file = ctx.params.get("rack") or rack_path()
    except ConfigError:
        return [], []
    return starting(file, incomplete)


def _in_use(ctx: click.Context, _param: click.Parameter, named: Path | None) -> Path | None:
    """The file that is named, or the one in use. Not for a group: its command may name another one."""
    return named or (None if isinstance(ctx.command, click.Group) else rack_path())


rack_option = click.option(
    "--rack",
    "rack",
    type=click.Path(path_type=Path, readable=False),
    callback=_in_use,
    show_default="$RACK, else rack.yaml",
    help="The file that describes the rack.",
)


_Command = Callable[..., Any]

_SEVERAL = "a glob ('spark*'), or a group (nodes, switches)"
_NAMED: Mapping[str, Any] = {"multiple": True, "metavar": "NAME", "shell_complete": patterns}

limit_option = click.option("--limit", **_NAMED, help=f"Only this node or switch, {_SEVERAL}; may be given again.")
exclude_option = click.option("--exclude", **_NAMED, help=f"Not this node or switch, {_SEVERAL}; may be given again.")


def selection_options(command: _Command) -> _Command:
    """Add --limit, --exclude and --only to a command."""
    for option in (
        click.option("--only", multiple=True, type=click.Choice(ROLES), help="Only this role; may be given again."),
        exclude_option,
        limit_option,
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead; see docs/reference/json.md.")
quiet_option = click.option("--quiet", is_flag=True, help="Only the last line, and what is wrong.")


no_lock_option = click.option(
    "--no-lock", is_flag=True, help="Go on if the first node, which stores the lock, cannot be reached."
)


UNASKED_HELP = "Do not ask nodes whether units run there, before they are cut off from a switch."


def no_nodes_option(text: str) -> Callable[..., Any]:
    """Return the option for what asks nodes before it takes links down."""
    return click.option("--no-nodes", is_flag=True, help=text)


def switch_argument(rack: Rack, name: str | None) -> Switch:
    """The switch of that name, or the only one. Raises UsageError."""
    known = ", ".join(rack.switches) or "none"
    if name is None:
        if len(rack.switches) != 1:
            raise click.UsageError(f"name the switch; the rack has {known}")
        return next(iter(rack.switches.values()))
    if name not in rack.switches:
        raise click.UsageError(f"{name} is not a switch of the rack; it has {known}")
    return rack.switches[name]


def password_options(prefix: str, whose: str) -> Callable[[_Command], _Command]:
    """Add `--PREFIXpassword-env` and `--PREFIXpassword-file` to a command, and give it one argument for both.

    `prefix`: empty, or ends with a hyphen. `whose`: the owner of the password, in the genitive, for the help. The
    argument is called `password`, with the prefix before it: a SecretRef, or None when neither option is given. A
    variable's value, which click's own `envvar` would take, never reaches the command: it is fetched late.
    """
    argument = f"{prefix}password".replace("-", "_")

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def wrapped(*args: Any, **given: Any) -> Any:
            variable, file = given.pop(f"{argument}_env"), given.pop(f"{argument}_file")
            return command(*args, **given, **{argument: _secret_reference(variable, file, prefix)})

        file = click.option(
            f"--{prefix}password-file", metavar="PATH", help=f"File with {whose} password, readable by its owner only."
        )
        variable = click.option(
            f"--{prefix}password-env",
            metavar="VARIABLE",
            help=f"Environment variable with {whose} password; asked for otherwise.",
        )
        return variable(file(wrapped))

    return decorate


def _secret_reference(variable: str | None, file: str | None, prefix: str) -> SecretRef | None:
    """Where a password is. Raises UsageError."""
    if variable and file:
        raise click.UsageError(f"--{prefix}password-env and --{prefix}password-file exclude one another")
    given = {"env": variable} if variable else {"file": file} if file else None
    try:
        return SecretRef.model_validate(given) if given else None
    except ValidationError:
        raise click.UsageError("that is not the name of a variable or file; never write the password itself") from None


def an_address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return an IPv4 address as text, None for an option that is not given. Raises BadParameter."""
    try:
        return None if value is None else str(IPv4Address(value))
    except ValueError:
        raise click.BadParameter(f"{value} is not an IPv4 address") from None

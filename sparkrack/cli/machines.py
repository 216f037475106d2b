"""The names of machines that a shell may complete to."""

from __future__ import annotations

from pathlib import Path

import click

from sparkrack.fleet import RackError, load, rack_path


def machines(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes and switches of the rack that the command line is about."""
    found = starting(_file(ctx), incomplete)
    return [*found[0], *found[1]]


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Its nodes only."""
    return starting(_file(ctx), incomplete)[0]


def switches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Its switches only."""
    return starting(_file(ctx), incomplete)[1]


def starting(file: Path, incomplete: str) -> tuple[list[str], list[str]]:
    """The nodes and the switches whose names start so; none when the rack file cannot be used."""
    try:
        rack = load(file)
    except (RackError, OSError):
        return [], []
    found = ([name for name in kind if name.startswith(incomplete)] for kind in (rack.nodes, rack.switches))
    return next(found), next(found)


def _file(ctx: click.Context) -> Path:
    return ctx.params.get("rack") or rack_path()

"""`sparkrack check`: is the file good? Nothing is connected to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click
from pydantic import BaseModel, Field

from sparkrack.cli.options import json_option, quiet_option
from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Rack, RackError, load
from sparkrack.fleet.errors import counted
from sparkrack.fleet.record import Text


class Fault(BaseModel):
    """One thing wrong in the file: a person reads `file:line: path: what; right`. `line` None: the file as a whole."""

    file: Text
    line: int | None
    path: str
    what: str
    right: str


class Checked(BaseModel):
    """What was found of a rack file; the figures are there when it is good."""

    schema_: Literal["sparkrack.check/1"] = Field("sparkrack.check/1", serialization_alias="schema")
    file: Text
    good: bool
    faults: tuple[Fault, ...] = ()
    rack: str | None = None
    topology: str | None = None
    nodes: int | None = None
    switches: int | None = None
    cables: int | None = None
    legs: int | None = None


@click.command()
@rack_option
@json_option
@quiet_option
def check(rack: Path, as_json: bool, quiet: bool) -> None:
    """Judge rack.yaml without connecting to anything: exit 0, or 1 and one line for each fault.

    \b
      sparkrack check --rack desk.yaml
    """
    try:
        found = _good(rack, load(rack))
    except RackError as wrong:
        if not as_json:
            raise
        faults = tuple(Fault(**vars(fault)) for fault in wrong.faults)
        found = Checked(file=str(rack), good=False, faults=faults)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, indent=1))
    elif not quiet:
        click.echo(
            f"{rack}: {found.rack}: {counted(found.nodes, 'node')}, {counted(found.switches, 'switch', 'switches')}, "
            f"{counted(found.cables, 'cable')} ({found.legs} to a switch), {found.topology}"
        )
    sys.exit(0 if found.good else 1)


def _good(file: Path, rack: Rack) -> Checked:
    return Checked(
        file=str(file),
        good=True,
        rack=rack.rack,
        topology=rack.topology,
        nodes=len(rack.nodes),
        switches=len(rack.switches),
        cables=len(rack.cabling.cables),
        legs=sum(len(rack.cabling.legs(name)) for name in rack.switches),
    )

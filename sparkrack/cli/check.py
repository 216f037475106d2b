"""`sparkrack check`: is the file good? Nothing is connected to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click
from pydantic import BaseModel, Field

from core.advisories.advisories import advisory_line
from core.model import ConfigError, Rack, image_lock, load, model_lock
from core.model.declared_secrets import declared_secrets, missing_file, position
from core.model.errors import counted
from core.model.lock_file import lock_path
from core.util.records import Text
from roles.blackbox.options import BlackboxOptions, unencrypted
from roles.watch.options import WatchOptions, unguarded
from serving import calibration
from serving import rules as serving_rules
from serving.options import served_units
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, quiet_option, rack_option
from switch.advisories import known_against_release
from switch.bootstrap.menus import PLACEHOLDER


class ProblemRecord(BaseModel):
    """One error in the file; its text is `file:line: path: what; right`. `line` None: the file as a whole."""

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
    faults: tuple[ProblemRecord, ...] = ()
    rack: str | None = None
    topology: str | None = None
    nodes: int | None = None
    switches: int | None = None
    cables: int | None = None
    legs: int | None = None


_TOPOLOGIES = {
    "direct": "node to node, in pairs",
    "ring": "node to node, in a ring",
    "switch": "through a switch",
}


@click.command()
@rack_option
@json_option
@quiet_option
def check(rack: Path, as_json: bool, quiet: bool) -> None:
    """Judge rack.yaml without connecting to anything: exit 0, or 1 and one line for each fault.

    A secret's file that does not exist is a warning: `sparkrack plan` refuses if a run needs it. So is what cannot be
    known of a unit of `serving` before its model is recorded, a fit that is accepted by hand, what leaves the nodes
    unencrypted, alerts without a heartbeat, and what is known against the release of a switch
    (docs/reference/advisories.md).

    \b
      sparkrack check --rack lab.yaml
    """
    warnings: list[str] = []
    loaded: Rack | None = None
    try:
        loaded = load(rack)
        found = _good(rack, loaded)
        warnings += [
            f"{position(rack, secret.path)}: {missing_file(secret)}"
            for secret in declared_secrets(loaded)
            if secret.missing
        ]
        warnings += _serving(rack, loaded)
        warnings += _releases(rack, loaded)
        warnings += [
            f"{position(rack, note.path)}: {note.what}; {note.right}"
            for note in (
                *unencrypted(loaded.declared(BlackboxOptions)),
                *unguarded(loaded.declared(WatchOptions)),
            )
        ]
    except ConfigError as wrong:
        if not as_json:
            raise
        faults = tuple(ProblemRecord(**vars(fault)) for fault in wrong.faults)
        found = Checked(file=str(rack), good=False, faults=faults)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, indent=1))
    elif not quiet:
        click.echo(
            f"{rack}: OK: {found.rack} has {counted(found.nodes, 'node')}, "
            f"{counted(found.switches, 'switch', 'switches')} and {counted(found.cables, 'cable')} "
            f"({found.legs} to a switch), topology: {_TOPOLOGIES[found.topology or 'direct']}"
        )
    if not as_json:
        for line in warnings:
            click.echo(f"warning: {line}", err=True)
    if loaded:
        verb = "bootstrap" if _new(loaded) else "plan"
        next_step(["sparkrack", verb], rack=rack, silent=as_json or quiet)
    sys.exit(0 if found.good else 1)


def _serving(file: Path, rack: Rack) -> list[str]:
    if not served_units(rack):
        return []
    lock = lock_path(rack.source)
    notes = serving_rules.notes(rack, model_lock.read(lock), calibration.read(lock), image_lock.known_ids(lock))
    return [f"{position(file, note.path)}: {note.what}; {note.right}" for note in notes]


def _releases(file: Path, rack: Rack) -> list[str]:
    """Return what is known against the release that each switch declares."""
    return [
        f"{position(file, ('switches', name, 'release'))}: {advisory_line(row, switch.release)}"
        for name, switch in rack.switches.items()
        if switch.release is not None
        for row in known_against_release(switch, switch.release)
    ]


def _new(rack: Rack) -> bool:
    """Return whether a switch or all nodes were never in contact with this machine: `bootstrap` comes first."""
    switches = any(switch.tls and switch.tls.sha256 == PLACEHOLDER for switch in rack.switches.values())
    return switches or not rack.access.known_hosts.exists()


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

"""Judges a rack file: its errors, its figures, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from core.advisories.advisories import advisory_line
from core.model import ConfigError, Rack, addressing, image_lock, load, model_lock
from core.model.declared_secrets import declared_secrets, missing_file, position
from core.model.lock_file import lock_path
from core.ssh.operator_key import missing_key
from core.util.records import Text
from roles.blackbox.options import BlackboxOptions, unencrypted
from roles.driver import known_versions
from roles.driver.options import DriverOptions
from roles.rdma import ring_cables
from roles.watch.options import WatchOptions, unguarded
from serving import calibration
from serving import rules as serving_rules
from serving.options import served_units
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

    schema_: Literal["sparkrack.check/1"] = Field("sparkrack.check/1", alias="schema", serialization_alias="schema")
    file: Text
    good: bool
    faults: tuple[ProblemRecord, ...] = ()
    rack: str | None = None
    topology: str | None = None
    nodes: int | None = None
    switches: int | None = None
    cables: int | None = None
    legs: int | None = None
    defaults: tuple[str, ...] = Field((), description="what applies since it is not written, and where it comes from")


@dataclass(frozen=True)
class CheckedFile:
    """`found`: the published result. `rack`: None when the file is not good, and `error` has its errors then.
    `warnings`: a line each."""

    found: Checked
    rack: Rack | None
    warnings: tuple[str, ...] = ()
    error: ConfigError | None = None

    @property
    def new(self) -> bool:
        """Whether a switch or all nodes were never in contact with this machine: `bootstrap` comes first."""
        if self.rack is None:
            return False
        switches = any(switch.tls and switch.tls.sha256 == PLACEHOLDER for switch in self.rack.switches.values())
        return switches or not self.rack.access.known_hosts.exists()


def check_rack_file(file: Path) -> CheckedFile:
    """Judge a rack file."""
    try:
        rack = load(file)
    except ConfigError as wrong:
        faults = tuple(ProblemRecord(**vars(fault)) for fault in wrong.faults)
        return CheckedFile(Checked(file=str(file), good=False, faults=faults), None, error=wrong)
    warnings = [
        f"{position(file, secret.path)}: {missing_file(secret)}" for secret in declared_secrets(rack) if secret.missing
    ]
    if missing := missing_key(rack.access.key):
        warnings.append(f"{position(file, ('access', 'key'))}: {missing.partition(': ')[2]}")
    warnings += _warn_of_open_driver(file, rack)
    warnings += _warn_of_serving(file, rack)
    warnings += _warn_of_releases(file, rack)
    warnings += [
        f"{position(file, note.path)}: {note.what}; {note.right}"
        for note in (
            *ring_cables.notes(rack),
            *known_versions.notes(rack),
            *unencrypted(rack.declared(BlackboxOptions)),
            *unguarded(rack.declared(WatchOptions)),
        )
    ]
    return CheckedFile(_good_result(file, rack), rack, tuple(warnings))


def _warn_of_open_driver(file: Path, rack: Rack) -> list[str]:
    """Return that driver and kernel are open to updates, unless the file has a word about it."""
    if rack.declared(DriverOptions) or not rack.keeps("driver"):
        return []
    what = "nothing is held, so an update of a node changes its driver and its kernel"
    right = "write driver: {hold: true} to hold what is installed, or leave: [driver] if that is meant"
    return [f"{position(file, ('driver',))}: {what}; {right}"]


def _warn_of_serving(file: Path, rack: Rack) -> list[str]:
    if not served_units(rack):
        return []
    lock = lock_path(rack.source)
    warnings: list[str] = []
    pins: dict[str, image_lock.Pin] = {}
    try:
        pins = image_lock.read(lock)
    except ConfigError as broken:
        warnings += str(broken).splitlines()
    notes = serving_rules.notes(rack, model_lock.read_declared(lock, rack.models), calibration.read(lock), pins)
    return warnings + [f"{position(file, note.path)}: {note.what}; {note.right}" for note in notes]


def _warn_of_releases(file: Path, rack: Rack) -> list[str]:
    """Return what is known against the release that each switch declares."""
    return [
        f"{position(file, ('switches', name, 'release'))}: {advisory_line(row, switch.release)}"
        for name, switch in rack.switches.items()
        if switch.release is not None
        for row in known_against_release(switch, switch.release)
    ]


def _good_result(file: Path, rack: Rack) -> Checked:
    return Checked(
        file=str(file),
        good=True,
        rack=rack.rack,
        topology=rack.topology,
        nodes=len(rack.nodes),
        switches=len(rack.switches),
        cables=len(rack.cabling.cables),
        legs=sum(len(rack.cabling.legs(name)) for name in rack.switches),
        defaults=tuple(_list_defaults(rack)),
    )


def _list_defaults(rack: Rack) -> Iterator[str]:
    """Yield what applies of the required parts of a rack since the file does not have it."""
    access = rack.access
    if "rack" not in rack.model_fields_set:
        yield f"rack {rack.rack} (folder)"
    if "user" not in access.model_fields_set:
        yield f"user {access.user} (you)"
    if "key" not in access.model_fields_set:
        yield f"key {access.key.name} (in ~/.ssh)"
    if "known_hosts" not in access.model_fields_set:
        yield f"known_hosts {access.known_hosts.name} (beside the file)"
    if rack.fabric.subnets is None and rack.fabric.pool is None:
        fabric = addressing.sourced(rack.fabric, rack.cabling)
        yield f"pool {fabric.pool}" if fabric.pool else f"subnets {' and '.join(map(str, fabric.subnets or ()))}"
    open_ = [name for name, node in rack.nodes.items() if node.vendor is None]
    if open_:
        yield f"vendor of {', '.join(open_)} (any)"

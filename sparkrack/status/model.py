"""Content of `sparkrack status`, as data; it is also its JSON. None is an unknown value."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from core.util.records import Record, Text


class About(StrEnum):
    """Subject of a finding: a column of the screen, the run lock, earlier runs, or the whole host."""

    UPTIME = "uptime"
    KERNEL = "kernel"
    DRIVER = "driver"
    MEMORY = "memory"
    SWAP = "swap"
    LINKS = "links"
    IMAGES = "images"
    REBOOT = "reboot"
    CONTAINERS = "containers"
    VERSION = "version"
    IDENTITY = "identity"
    LEGS = "legs"
    TEMPERATURE = "temperature"
    ROLLBACK_TIMER = "rollback timer"
    DEVICE_MODE = "device mode"
    LOCK = "lock"
    LAST_DRIFT = "last drift"
    LAST_RUN = "last run"
    LAST_DRILL = "last drill"
    ALL = "all"


class StatusFinding(Record):
    """One difference from the declaration, or the reason of one unknown value."""

    about: About
    text: str


class MemoryStatus(Record):
    """In KiB. `available`: memory that may be taken without swapping, by the kernel's estimate."""

    total: int
    available: int


class LinkStatus(Record):
    """One half of a cabled port as the node reports it. `there`: the interface exists. Speeds in Gb/s; `gbps` is None
    without a carrier, too.
    """

    interface: str
    wanted: int
    there: bool | None = None
    carrier: bool | None = None
    gbps: float | None = None


class ImagesStatus(Record):
    """Number of images that rack.yaml declares, and of those that the node has with the right ID and name."""

    declared: int
    right: int | None = None


class NodeStatus(Record):
    """A node. `uptime` in seconds; `swap`: active swap devices; `reboot`: a package requested one; `containers`:
    running ones.
    """

    name: str
    reachable: bool
    uptime: int | None = None
    kernel: str | None = None
    driver: str | None = None
    memory: MemoryStatus | None = None
    swap: tuple[str, ...] | None = None
    links: tuple[LinkStatus, ...] = ()
    images: ImagesStatus
    reboot: bool | None = None
    containers: int | None = None
    wrong: tuple[StatusFinding, ...] = ()
    unknown: tuple[StatusFinding, ...] = ()
    notes: tuple[str, ...] = ()


class LegStatus(Record):
    """A cabled leg as the switch reports it; `status` and `rate` are its own words."""

    interface: str
    port: str = Field(description='of the node at its end, "spark1/1"')
    status: str | None = None
    rate: str | None = None
    up: bool | None = None


class SwitchStatus(Record):
    """A switch. `uptime` in seconds; `temperature`: the highest that it reports (°C), None also where it
    reports none.
    """

    name: str
    reachable: bool
    uptime: int | None = None
    version: str | None = None
    identity: str | None = None
    legs: tuple[LegStatus, ...] = ()
    temperature: float | None = None
    wrong: tuple[StatusFinding, ...] = ()
    unknown: tuple[StatusFinding, ...] = ()
    notes: tuple[str, ...] = ()


class LockHolder(Record):
    """The run that changes the rack now, as it wrote itself down. `silence`: seconds since its latest heartbeat, by the
    head node's clock; None when the run sends none. `expired`: so long that its lock does not count any more."""

    id: str
    operator: str
    since: str
    scope: str
    silence: int | None = None
    expired: bool = False


class LockStatus(Record):
    """The run lock. `known`: the head node was asked, and answered; else nothing is known."""

    known: bool
    holder: LockHolder | None = None


class LastDrift(Record):
    """The newest look of `sparkrack drift` that is kept on this machine: at which machines, of which roles.
    `unknown_hosts`: the machines of which not all could be read; `counts`: findings by kind."""

    run: str
    made: datetime
    hosts: tuple[str, ...]
    roles: tuple[str, ...]
    unknown_hosts: tuple[str, ...]
    counts: dict[str, int]


class LastRun(Record):
    """The newest journal of a run that is kept on this machine. `result` is None for a run that did not write its
    end: it was interrupted, or it in progress when it holds the lock."""

    run: str
    began: datetime
    operator: str
    scope: str
    ended: datetime | None = None
    result: str | None = None


class LastDrill(Record):
    """The newest drill of the black box that is kept on this machine."""

    node: str
    level: str
    made: datetime
    passed: bool


class ServedUnitState(Record):
    """A declared unit whose head was asked; it has no effect on the exit code. `state`: as its coordinator reports it,
    absent when the head has no files of the unit, None when it is unknown. `as_desired`: whether it is as
    `state` in rack.yaml.
    """

    name: str
    nodes: tuple[str, ...] = Field(description="in rank order; the first is the head")
    desired_state: str
    state: str | None = None
    as_desired: bool | None = None


class Status(Record):
    """A rack, or its selected machines. `drift`, `run` and `drill` are None where there never was one; `unknown`: their
    unknown values. `blackbox`: rack.yaml declares one, so that drills are worth a line.
    """

    schema_: Literal["sparkrack.status/2"] = Field("sparkrack.status/2", alias="schema", serialization_alias="schema")
    rack: str
    file: Text
    made: datetime
    nodes: tuple[NodeStatus, ...]
    switches: tuple[SwitchStatus, ...]
    lock: LockStatus
    drift: LastDrift | None = None
    run: LastRun | None = None
    drill: LastDrill | None = None
    blackbox: bool = False
    units: tuple[ServedUnitState, ...] = ()
    unknown: tuple[StatusFinding, ...] = ()

    @property
    def machines(self) -> tuple[NodeStatus | SwitchStatus, ...]:
        """Nodes first."""
        return (*self.nodes, *self.switches)

    @property
    def code(self) -> int:
        """The exit code: 1 when anything is unknown, 2 when anything differs from the declaration, else 0. Results of
        earlier runs, a held lock and the states of served units have no effect.
        """
        if self.unknown or any(one.unknown or not one.reachable for one in self.machines):
            return 1
        return 2 if any(one.wrong for one in self.machines) else 0

    def json_text(self) -> str:
        """The JSON document, indented, with a line end."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

"""What `sparkrack status` tells, as data; it is also its JSON. None is what could not be told."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sparkrack.fleet.record import Text


class About(StrEnum):
    """What a finding is about: a column of the screen, the run lock, what was before, or all of a machine."""

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
    LOCK = "lock"
    LAST_DRIFT = "last drift"
    LAST_RUN = "last run"
    ALL = "all"


class Part(BaseModel):
    """A part of the status: no unknown keys, no change once it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Finding(Part):
    """One thing that is not as declared, or why one thing could not be told."""

    about: About
    text: str


class Memory(Part):
    """In KiB. `available`: what may be taken without swapping, as the kernel reckons."""

    total: int
    available: int


class Link(Part):
    """One half of a cabled port as the node sees it. `there`: the interface exists. Speeds in Gb/s; `gbps` is None
    without a carrier, too."""

    interface: str
    wanted: int
    there: bool | None = None
    carrier: bool | None = None
    gbps: float | None = None


class Images(Part):
    """How many images rack.yaml declares, and of how many the node has the right bytes under the right name."""

    declared: int
    right: int | None = None


class NodeStatus(Part):
    """A node. `uptime` in seconds; `swap`: what is swapped to; `reboot`: a package asked for one; `containers` that
    run."""

    name: str
    reachable: bool
    uptime: int | None = None
    kernel: str | None = None
    driver: str | None = None
    memory: Memory | None = None
    swap: tuple[str, ...] | None = None
    links: tuple[Link, ...] = ()
    images: Images
    reboot: bool | None = None
    containers: int | None = None
    wrong: tuple[Finding, ...] = ()
    unknown: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


class LegStatus(Part):
    """A cabled leg as the switch sees it; `status` and `rate` are its own words."""

    interface: str
    port: str = Field(description='of the node at its end, "spark1/1"')
    status: str | None = None
    rate: str | None = None
    up: bool | None = None


class SwitchStatus(Part):
    """A switch. `uptime` in seconds; `temperature`: the highest that it tells (°C), None also where it tells none."""

    name: str
    reachable: bool
    uptime: int | None = None
    version: str | None = None
    identity: str | None = None
    legs: tuple[LegStatus, ...] = ()
    temperature: float | None = None
    wrong: tuple[Finding, ...] = ()
    unknown: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


class LockHolder(Part):
    """The run that changes the rack now, as it wrote itself down."""

    id: str
    who: str
    since: str
    what: str


class Lock(Part):
    """The run lock. `told`: the head node was asked, and answered; else nothing is known."""

    told: bool
    holder: LockHolder | None = None


class LastDrift(Part):
    """The newest look of `sparkrack drift` that is kept on this machine: at which machines, of which roles. `untold`:
    the machines that it could not tell; `counts`: findings by kind."""

    run: str
    made: datetime
    machines: tuple[str, ...]
    roles: tuple[str, ...]
    untold: tuple[str, ...]
    counts: dict[str, int]


class LastRun(Part):
    """The newest journal of a run that is kept on this machine. `result` is None for a run that did not write its
    end: it was cut off, or it still goes on when it holds the lock."""

    run: str
    began: datetime
    who: str
    what: str
    ended: datetime | None = None
    result: str | None = None


class Status(Part):
    """A rack, or the machines of it that were asked for. `drift` and `run` are None where there never was one;
    `unknown`: what could not be told of them."""

    schema_: Literal["sparkrack.status/1"] = Field(default="sparkrack.status/1", alias="schema")
    rack: str
    file: Text
    made: datetime
    nodes: tuple[NodeStatus, ...]
    switches: tuple[SwitchStatus, ...]
    lock: Lock
    drift: LastDrift | None = None
    run: LastRun | None = None
    unknown: tuple[Finding, ...] = ()

    @property
    def machines(self) -> tuple[NodeStatus | SwitchStatus, ...]:
        """Nodes first."""
        return (*self.nodes, *self.switches)

    @property
    def code(self) -> int:
        """The exit code: 1 when anything could not be told, 2 when anything is not as declared, else 0. What an
        earlier look or run found, and a held lock, are no faults of now."""
        if self.unknown or any(one.unknown or not one.reachable for one in self.machines):
            return 1
        return 2 if any(one.wrong for one in self.machines) else 0

    def json_text(self) -> str:
        """The JSON document, indented, with a line end."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

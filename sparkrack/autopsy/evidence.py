"""Evidence about the end of a boot, as it was collected. All times are seconds since 1970 by the operator's clock;
a time that a clock wrote before it was set is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class SourceState(StrEnum):
    """Whether a source gave evidence. The values stand in JSON."""

    READ = "read"
    ABSENT = "absent"
    """It answers, and has nothing about this end."""
    UNKNOWN = "unknown"
    """It does not answer, or its answer cannot be parsed."""


@dataclass(frozen=True)
class EvidenceSource:
    """One source. `detail`: what it gave, or why not. `skew`: seconds by which its clock is ahead of the operator's."""

    name: str
    state: SourceState
    detail: str
    skew: float | None = None


@dataclass(frozen=True)
class LogLine:
    """One line of a log. `source`: which log; `program`: what wrote it. `time` is None where it cannot be parsed."""

    time: float | None
    source: str
    program: str
    text: str

    @property
    def of_a_program(self) -> bool:
        """Whether a program other than systemd wrote it, by itself; not what another one says of it, as netconsole."""
        return self.source in ("journal", "remote journal") and not self.program.startswith(
            ("kernel", "audit", "systemd", "/dev/kmsg")
        )


@dataclass(frozen=True)
class Sample:
    """One sample of the recorder. `available`: share of all memory; `full`: pressure, average over 10 s in percent;
    `no_memory`: kernel lines about memory that the GPU did not get. None: unknown.
    """

    time: float
    boot: str
    available: float | None = None
    full: float | None = None
    no_memory: int | None = None
    clock: float | None = None
    utilization: float | None = None
    margin: float | None = None
    power: float | None = None


@dataclass(frozen=True)
class LinkChange:
    """A leg of the switch that went up or down. `logged`: the switch's log has it, so earlier changes are known too."""

    leg: str
    time: float
    up: bool
    logged: bool


@dataclass(frozen=True)
class UnitHang:
    """The latest hang of a unit, as its agent found it before it stopped the rank. `boot`: in which it was.
    `text`: what the GPU showed, and which parts of the evidence there are.
    """

    unit: str
    time: float
    boot: str
    text: str


@dataclass(frozen=True)
class LegNow:
    """Whether a leg of the node has a link now; None: unknown."""

    leg: str
    up: bool | None


@dataclass(frozen=True)
class CleanStop:
    """The mark that a boot ended by a shutdown. `target`: reboot, poweroff, ... None: unknown."""

    time: float | None
    target: str | None


@dataclass(frozen=True)
class Evidence:
    """Everything about the end of one boot of a node.

    alive: the node answers now. boot, began: its present boot, and the time of that. ended, ended_began: the boot that
    ended, and the time when it began. earlier_records: names of records of panics of a boot before the one that ended.
    feeding: seconds after which the watchdog acts; 0: systemd feeds none. shutdown_limit: the same while it shuts down.
    power_ons: how often the node's disk got its power between the two boots.
    pause_limit: the most seconds between a shutdown and the next boot that show no other boot between them.
    firmware: what this boot reports about a reset by the watchdog; hardware: about errors of the hardware before it.
    life: signs that a node which does not answer is alive, by other wires than its management link; silent: wires that
    were asked, and have none. forgeable: sources into which any program, or any host of the network, can write.
    other_downs: when legs of other nodes lost their link, by the name of the node. clocks_unknown: hosts that answer,
    and not what their clock shows: the times that they wrote are unknown.
    """

    node: str
    asked: float
    alive: bool
    boot: str | None = None
    began: float | None = None
    ended: str | None = None
    ended_began: float | None = None
    clean_stop: CleanStop | None = None
    lines: tuple[LogLine, ...] = ()
    records: tuple[str, ...] = ()
    earlier_records: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    forgeable: frozenset[str] = frozenset({"netconsole"})
    feeding: float | None = None
    shutdown_limit: float | None = None
    pause_limit: float | None = None
    power_ons: int | None = None
    samples: tuple[Sample, ...] = ()
    changes: tuple[LinkChange, ...] = ()
    legs: tuple[LegNow, ...] = ()
    life: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    other_downs: dict[str, float] = field(default_factory=dict)
    clocks_unknown: tuple[str, ...] = ()
    sources: tuple[EvidenceSource, ...] = ()

    @property
    def last_sign(self) -> tuple[float, str] | None:
        """The time of the last sign of life of the boot that ended, and its source; None: there is none."""
        signs = [(line.time, line.source) for line in self.lines if line.time is not None]
        signs += [(sample.time, "samples") for sample in self.samples]
        if self.clean_stop and self.clean_stop.time is not None:
            signs.append((self.clean_stop.time, "mark of the shutdown"))
        return max(signs, default=None)

    @property
    def last_activity(self) -> tuple[float, str] | None:
        """The time of the last sign that programs ran in the boot that ended, and its source; None: there is none.

        The kernel and systemd write on after a panic or the end of all services; a program does not.
        """
        signs = [(sample.time, "samples") for sample in self.samples]
        signs += [(line.time, line.source) for line in self.lines if line.time is not None and line.of_a_program]
        return max(signs, default=None)

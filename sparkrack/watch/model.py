"""The result of `sparkrack watch`, as data; it is also its JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field

from core.util.records import Record, Text

JUDGED = ("page", "ticket")
"""Severities of alerts that call for an action."""


class WatchedNode(Record):
    """The last values of a node; None: Prometheus has none."""

    name: str
    up: bool | None = Field(description="whether its exporter answers; null: Prometheus does not ask it")
    memory_available: float | None = Field(description="bytes")
    memory_total: float | None = Field(description="bytes")
    memory_stalled: float | None = Field(description="share of the last minute in which all tasks waited for memory")
    links_up: int | None = Field(description="halves of cabled ports that have a link")
    links: int = Field(description="halves of cabled ports, as declared")
    gpu_clock: float | None = Field(description="MHz")
    gpu_power: float | None = Field(description="W")
    gpu_margin: float | None = Field(description="degrees Celsius below the limit of the GPU")
    gpu_utilization: float | None = Field(description="share, 0 to 1")

    @property
    def unknown(self) -> bool:
        """Whether a value is missing that the exporter of each node has."""
        needed = (self.memory_available, self.memory_total, self.links_up if self.links else 0)
        return self.up is None or (self.up and None in needed)


class WatchedUnit(Record):
    """The last values of a served unit; None: Prometheus has none."""

    name: str
    node: str
    up: bool | None = Field(description="whether its API answers; null: Prometheus does not ask it")
    running: float | None = Field(description="requests")
    waiting: float | None = Field(description="requests")
    cache: float | None = Field(description="share of the cache for keys and values that is used, 0 to 1")


class WatchedLeg(Record):
    """A cabled leg of a switch; None: its reading has no such value."""

    leg: str
    to: str = Field(description="the port of the node at its other end")
    up: bool | None = Field(description="whether the switch reports a link")
    gbps: float | None = Field(description="Gbit/s of the link")
    fec: Text | None = Field(description="forward error correction of the link, as RouterOS calls it")


class WatchedSwitch(Record):
    """The last reading of a switch; None: it has no such value. A reading that is too old has no values."""

    name: str
    declared: bool = Field(description="whether the server is to read it")
    up: bool | None = Field(description="whether it answers its reader; null: unknown")
    reason: Text = Field(description="why it has no values; empty: it was read")
    unread: tuple[Text, ...] = Field(description="parts of the reading that could not be read")
    age: float | None = Field(description="seconds since it was asked, successful or not")
    temperature: float | None = Field(description="degrees Celsius of the hottest sensor")
    fans: int | None
    fans_turning: int | None
    psus_ok: int | None = Field(description="power supplies in order")
    psus_expected: int | None
    pauses: float | None = Field(description="pause frames a second of all legs, received and sent, over 5 minutes")
    drops: float | None = Field(description="dropped frames a second of all legs, over 5 minutes")
    legs: tuple[WatchedLeg, ...] = Field(description="as declared")

    @property
    def unknown(self) -> bool:
        """Whether a value is missing that its reader is to have. A switch that does not answer is not unknown."""
        return self.declared and (self.up is None or bool(self.unread))


class ActiveAlert(Record):
    """An alert that fires, or will soon."""

    name: Text
    severity: Text
    state: Literal["firing", "pending"]
    since: datetime | None
    node: Text = Field(description="the node that it is about; empty: none")
    summary: Text
    runbook: Text


class ActiveSilence(Record):
    """What keeps alerts from their receivers until it ends."""

    by: Text = Field(description="who made it, as that one said")
    until: datetime | None
    matchers: Text = Field(description="labels of the alerts that it silences")
    comment: Text
    of_run: bool = Field(description="whether it has the mark of a run: by sparkrack, with the ID of the run")


class UnreadPart(Record):
    """A question that Prometheus could not answer."""

    part: Text = Field(description="what is unknown: machines or units and their value, such as nodes: gpu_power")
    reason: Text


class WatchReport(Record):
    """The rack as its Prometheus has it."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.watch/1"] = Field("sparkrack.watch/1", alias="schema")
    rack: str = Field(description="the name of the rack")
    made: datetime = Field(description="when Prometheus was asked, UTC")
    server: str = Field(description="the URL of Prometheus")
    nodes: tuple[WatchedNode, ...]
    units: tuple[WatchedUnit, ...] = Field(description="those that Prometheus is to ask")
    switches: tuple[WatchedSwitch, ...]
    alerts: tuple[ActiveAlert, ...] = Field(
        description="those of severity page and ticket first, and of these those that fire"
    )
    silences: tuple[ActiveSilence, ...] | None = Field(
        default=None, description="those that are active; null: only Prometheus was asked"
    )
    unread: tuple[UnreadPart, ...] = Field(description="what Prometheus could not answer, which is unknown")

    def lacks(self, part: str) -> bool:
        """Return whether Prometheus could not answer this question."""
        return any(one.part == part for one in self.unread)

    @property
    def machines(self) -> tuple[WatchedNode | WatchedSwitch, ...]:
        """The nodes and the switches."""
        return (*self.nodes, *self.switches)

    @property
    def firing(self) -> tuple[ActiveAlert, ...]:
        """The alerts that fire and call for an action."""
        return tuple(one for one in self.alerts if one.state == "firing" and one.severity in JUDGED)

    @property
    def foreign_silences(self) -> tuple[ActiveSilence, ...]:
        """The silences that no run made."""
        return tuple(one for one in self.silences or () if not one.of_run)

    @property
    def exit(self) -> int:
        """The exit code: 1 when a value is unknown; 2 when an alert fires, one is silent, or alerts are silenced by
        what is not a run; else 0.
        """
        if self.unread or any(one.unknown for one in self.machines):
            return 1
        silent = any(one.up is False for one in self.machines)
        return 2 if self.firing or silent or self.foreign_silences else 0

    def to_json(self) -> str:
        """The record as text, with its schema's name first."""
        return self.model_dump_json(by_alias=True, indent=2)

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


class ActiveAlert(Record):
    """An alert that fires, or will soon."""

    name: Text
    severity: Text
    state: Literal["firing", "pending"]
    since: datetime | None
    node: Text = Field(description="the node that it is about; empty: none")
    summary: Text
    runbook: Text


class WatchReport(Record):
    """The rack as its Prometheus has it."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.watch/1"] = Field("sparkrack.watch/1", alias="schema")
    rack: str = Field(description="the name of the rack")
    made: datetime = Field(description="when Prometheus was asked, UTC")
    server: str = Field(description="the URL of Prometheus")
    nodes: tuple[WatchedNode, ...]
    units: tuple[WatchedUnit, ...] = Field(description="those that Prometheus is to ask")
    alerts: tuple[ActiveAlert, ...] = Field(description="those that fire first")

    @property
    def firing(self) -> tuple[ActiveAlert, ...]:
        """The alerts that fire and call for an action."""
        return tuple(one for one in self.alerts if one.state == "firing" and one.severity in JUDGED)

    @property
    def exit(self) -> int:
        """The exit code: 1 when a value of a node is unknown, 2 when an alert fires, else 0."""
        if any(one.unknown for one in self.nodes):
            return 1
        return 2 if self.firing or any(one.up is False for one in self.nodes) else 0

    def to_json(self) -> str:
        """The record as text, with its schema's name first."""
        return self.model_dump_json(by_alias=True, indent=2)

"""What a switch model is: its cages with their lanes and breakouts, its other ports, its limits and its names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# The mounting kit is part of the article's name and not of what the board reports: an article CRS804-4DDQ-hRM reports
# CRS804-4DDQ (one field report), and the same is inferred of CRS812-8DS-2DQ-2DDQ-RM.
_MOUNT = re.compile(r"-?h?(?:RM|IN)$", re.IGNORECASE)


@dataclass(frozen=True)
class Breakout:
    """One way to divide a cage: the legs' speed in Gb/s, how many lanes each takes, and where each begins."""

    name: str
    gbps: int
    lanes_per_leg: int
    first_lanes: tuple[int, ...]

    @property
    def lane_gbps(self) -> int:
        """Speed of one lane in Gb/s."""
        return self.gbps // self.lanes_per_leg

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that the legs take; the other lanes of the cage are unused."""
        return tuple(lane for first in self.first_lanes for lane in range(first, first + self.lanes_per_leg))


@dataclass(frozen=True)
class CageKind:
    """A kind of cage: how many electrical lanes it has, and its breakouts by name, the largest legs first."""

    name: str
    lanes: int
    breakouts: Mapping[str, Breakout]


@dataclass(frozen=True)
class SwitchModel:
    """A model of switch. `name` is what rack.yaml calls it.

    `board` is what /system/routerboard prints as model, `article` what the maker sells. `cages` are the kinds of the
    cages by the name of the cage. `max_l2mtu` is the largest l2mtu of a cage's lane in bytes. `management_ports` are
    the RJ45 ports beside the cages. `driver_package` is the package of RouterOS that drives the switch chip.
    `unproven` are the facts that no document of the maker states for this model, each with its source.
    """

    name: str
    board: str
    article: str
    cages: Mapping[str, CageKind]
    management_ports: tuple[str, ...]
    max_l2mtu: int
    chip: str
    architecture: str
    driver_package: str
    unproven: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The model as messages name it, "CRS812"."""
        return self.name.upper()

    @property
    def kinds(self) -> tuple[CageKind, ...]:
        """The kinds of cages that it has, each once."""
        return tuple({kind.name: kind for kind in self.cages.values()}.values())

    def is_board(self, text: str) -> bool:
        """Whether a board that reports `text` as its model is one of these, with or without a mounting kit."""
        return _MOUNT.sub("", text).lower() == self.board.lower()

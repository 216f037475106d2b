"""Units as systemd has them: the command that asks for them, and the parser of its answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.util.joined_questions import JoinableQuestion

MARKS = "/run/sparkrack"
"""Folder of marks for files that were written and that no program has read yet; a reboot replaces the reading."""

_SETTLED = ("active", "reloading", "refreshing")
_STATES = (*_SETTLED, "activating", "inactive", "failed", "deactivating", "maintenance")
_NAME = re.compile(r"[\w@.:\\-]+\.(service|socket|timer|slice)")


@dataclass(frozen=True)
class SystemdUnit:
    """LoadState, ActiveState and UnitFileState of a unit. `reload`: its files were changed since systemd read them."""

    load: str
    active: str
    file: str
    reload: bool = False

    @property
    def installed(self) -> bool:
        """Whether the node has it; one that is masked counts."""
        return self.load != "not-found"

    @property
    def masked(self) -> bool:
        """Whether it cannot be started, until the next boot (`mask --runtime`) or for ever."""
        return self.load == "masked" or self.file.startswith("masked")

    @property
    def running(self) -> bool:
        """Whether it runs now, or is started by systemd again and again."""
        return self.settled or self.active == "activating"

    @property
    def settled(self) -> bool:
        """Whether it runs. One that systemd is about to start again does not, and cannot read its files again."""
        return self.active in _SETTLED

    @property
    def enabled(self) -> bool:
        """Whether it starts at every boot."""
        return self.file == "enabled"


def show_units(units: Iterable[str]) -> JoinableQuestion:
    """Return the shell text that prints the properties of these units."""
    return JoinableQuestion(
        'systemctl show --property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload "$@"', units, _split_blocks
    )


def _split_blocks(answer: str, units: Sequence[str]) -> dict[str, str]:
    """Return the block of each unit. systemd prints one for each argument in their order, and one that is an alias has
    the name of its unit."""
    blocks = answer.rstrip("\n").split("\n\n")
    if len(blocks) != len(units):
        raise ValueError(f"{len(blocks)} units instead of {len(units)}")
    return {unit: f"{block}\n\n" for unit, block in zip(units, blocks, strict=True)}


def parse_units(fact: str, answer: str, wanted: Iterable[str]) -> dict[str, SystemdUnit]:
    """Parse the answer to `show_units`: each unit by its name. An alias has the answer of its unit.

    Raises ValueError, which names the fact, when a wanted unit has no answer or any unit an unexpected one.
    """
    found = {}
    for block in filter(None, map(str.strip, answer.split("\n\n"))):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if not _is_unit(values):
            raise ValueError(f"{fact}: unexpected probe output {block[:80]!r}")
        found[values["Id"]] = SystemdUnit(
            values["LoadState"],
            values["ActiveState"],
            values.get("UnitFileState", ""),
            reload=values["NeedDaemonReload"] == "yes",
        )
    if missing := [unit for unit in wanted if unit not in found]:
        raise ValueError(f"{fact}: {', '.join(missing)}: no answer")
    return found


def _is_unit(values: Mapping[str, str]) -> bool:
    return bool(
        _NAME.fullmatch(values.get("Id", ""))
        and values.get("LoadState")
        and values.get("ActiveState") in _STATES
        and values.get("NeedDaemonReload") in ("yes", "no")
    )

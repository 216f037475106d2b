"""The RouterOS menus this project reads or writes, as a table.

Paths, arguments and words: RouterOS 7.23 command tree (`/console/inspect`); read-only fields: MikroTik
manual, 'Ethernet' and 'Bridging and switching'. Only fields named here are ever read, so counters never look
like drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .values import Kind

Row = Mapping[str, str]
"""One row as RouterOS prints it: every value is text, an unset field is absent."""

Release = tuple[int, int, int, int]
"""major, minor, patch, and 0 for a release or -1 for a beta or candidate of it."""

OLDEST: Release = (7, 23, 0, 0)
"""First release with safe mode scriptable (7.18), breakout seen at full speed on GB10 (7.23) and PFC on
CRS8xx (7.23)."""


@dataclass(frozen=True)
class Field:
    """One field: its kind, what its absence means (None = absence is not a value), and who may write it."""

    kind: Kind = Kind.WORD
    default: str | None = None
    since: Release = OLDEST
    read_only: bool = False
    volatile: bool = False  # changes by itself: read for gates and reports, never compared


@dataclass(frozen=True)
class Menu:
    """One menu. `key` names a row for the user (None: the menu has one row). `fixed`: rows cannot be
    added."""

    path: str
    key: str | None
    fields: Mapping[str, Field] = field(hash=False)
    fixed: bool = False

    @property
    def proplist(self) -> tuple[str, ...]:
        """What a print asks for: every field of this table and, where rows have one, their `.id`."""
        return tuple(self.fields) if self.key is None else (".id", *self.fields)

    @property
    def sentence(self) -> tuple[str, ...]:
        """The sentence that reads the menu."""
        return (f"{self.path}/print", f"=.proplist={','.join(self.proplist)}")


_FACT = Field(read_only=True)
_STATE = Field(read_only=True, volatile=True)

ETHERNET = Menu(
    "/interface/ethernet",
    key="default-name",  # `name` belongs to the user and may be changed
    fixed=True,
    fields={
        "default-name": _FACT,
        "name": Field(),
        "disabled": Field(Kind.FLAG, default="no"),
        "auto-negotiation": Field(Kind.FLAG, default="yes"),
        "speed": Field(),
        "fec-mode": Field(default="auto"),
        "l2mtu": Field(Kind.COUNT),
        "mtu": Field(Kind.COUNT, default="1500"),
    },
)
BRIDGE = Menu("/interface/bridge", key="name", fields={"name": Field()})
BRIDGE_PORT = Menu(
    "/interface/bridge/port",
    key="interface",
    fields={
        "interface": Field(),
        "bridge": Field(),
        "disabled": Field(Kind.FLAG, default="no"),
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
    },
)
IDENTITY = Menu("/system/identity", key=None, fields={"name": Field()})
RESOURCE = Menu("/system/resource", key=None, fixed=True, fields={"board-name": _FACT, "version": _FACT})
ROUTERBOARD = Menu("/system/routerboard", key=None, fixed=True, fields={"model": _FACT, "serial-number": _FACT})
PACKAGE = Menu(
    "/system/package",
    key="name",
    fixed=True,
    fields={"name": _FACT, "version": _FACT, "disabled": Field(Kind.FLAG, default="no", read_only=True)},
)
SAFE_MODE = Menu(
    "/safe-mode",
    key=None,
    fixed=True,
    fields={"enabled": _STATE, "current": _STATE, "user": _STATE, "owner": _STATE},
)

READ = (RESOURCE, ROUTERBOARD, PACKAGE, ETHERNET, BRIDGE, BRIDGE_PORT, IDENTITY)
"""All that one run reads, one sentence each, in this order."""

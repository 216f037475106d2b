"""Model of a RouterOS menu: a table of fields, with the fields that name a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.routeros.values import ValueKind, canonical

Row = Mapping[str, str]
"""One row as RouterOS prints it: every value is text, an unset field is absent."""

Key = tuple[str, ...]
"""Key of a row: the values of the menu's key fields; () in a menu of one row."""

Sentence = tuple[str, ...]
"""A command word such as /interface/ethernet/set, then its attribute (=k=v) and query (?...) words."""

Release = tuple[int, int, int, int]
"""major, minor, patch, and 0 for a release or -1 for a beta or candidate of it."""

OLDEST: Release = (7, 23, 0, 0)
"""First release with safe mode scriptable (7.18), breakout seen at full speed on GB10 (7.23) and PFC on
CRS8xx (7.23)."""


@dataclass(frozen=True)
class MenuField:
    """One field.

    kind: how its text is compared. default: the meaning of its absence (None = absence is not a value). since: the
    first release that has it. renamed: its name from a release on. secret: never asked for, although a switch prints
    some to users with the policy `sensitive`; so it is written with a new row and not compared. volatile: changes by
    itself; it is read for preconditions and reports, never compared. only_if: another field and its value, without
    which this field has no meaning and is not compared. private: its value may give access, so it is never shown.
    """

    kind: ValueKind = ValueKind.WORD
    default: str | None = None
    since: Release = OLDEST
    renamed: tuple[Release, str] | None = None
    read_only: bool = False
    volatile: bool = False
    secret: bool = False
    only_if: tuple[str, str] | None = None
    private: bool = False


@dataclass(frozen=True)
class Menu:
    """One menu. `key`: the fields that name a row for the user (none: the menu has one row).

    fixed: rows are there from the factory and cannot be added or removed. hidden: rows that are left out of
    every reading, by a field and the value it has there.
    """

    path: str
    key: Key
    fields: Mapping[str, MenuField] = field(hash=False)
    fixed: bool = False
    hidden: tuple[str, str] | None = None

    @property
    def single(self) -> bool:
        """Return whether the menu has exactly one row, which is written without an `.id`."""
        return not self.key

    def spelled(self, name: str, release: Release) -> str:
        """The name a release has for a field of this table."""
        renamed = self.fields[name].renamed
        return renamed[1] if renamed and release >= renamed[0] else name

    def sentence(self, release: Release = OLDEST) -> Sentence:
        """The sentence that reads the menu: every field of the table that the release has and that may be
        seen. Counters are never asked for, so they never look like drift."""
        names = [
            self.spelled(name, release)
            for name, field_ in self.fields.items()
            if not field_.secret and field_.since <= release
        ]
        return (f"{self.path}/print", f"=.proplist={','.join(names if self.single else ('.id', *names))}")

    def counts(self, name: str, row: Row) -> bool:
        """Return whether a field has a meaning in `row`."""
        if not (needed := self.fields[name].only_if):
            return True
        other, value = needed
        decides = self.fields[other]
        try:
            return canonical(decides.kind, row.get(other, decides.default or "")) == value
        except ValueError:
            return True

    def key_of(self, row: Row) -> Key:
        """Return the key of `row`; a key field that is not printed is ""."""
        return tuple(row.get(name, self.fields[name].default or "") for name in self.key)


FACT = MenuField(read_only=True)
STATE = MenuField(read_only=True, volatile=True)
FLAG = MenuField(ValueKind.FLAG, default="no")
ON = MenuField(ValueKind.FLAG, default="yes")
NOTE = MenuField(default="")
COUNT = MenuField(ValueKind.COUNT)

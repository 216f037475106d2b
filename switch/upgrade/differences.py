"""Comparison of a switch's configuration before and after an upgrade. Pure."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from core.routeros.diff import same_key
from core.routeros.menus import Key, Menu, Row
from core.routeros.reading import SwitchReading
from core.routeros.values import canonical, visible
from switch.backup import KEPT


@dataclass(frozen=True)
class UpgradeDifferences:
    """`changed`: what the switch had and has otherwise, or no more. `added`: menus, fields and rows of the factory that
    the new release brought. A line each.
    """

    changed: tuple[str, ...]
    added: tuple[str, ...]


def differences(before: SwitchReading, after: SwitchReading) -> UpgradeDifferences:
    """Compare the rows of the menus that a backup holds."""
    changed: list[str] = []
    added: Counter[str] = Counter()
    for menu in KEPT:
        if menu.path not in before.tables or menu.path in before.absent:
            if menu.path in after.tables and menu.path not in after.absent:
                added[menu.path] += 1
        elif menu.path in after.absent:
            changed.append(f"- {menu.path}: the whole menu")
        else:
            changed += _row_lines(menu, before, after, added)
    counted = (f"{what} ({count} rows)" if count > 1 else what for what, count in added.items())
    return UpgradeDifferences(tuple(changed), tuple(counted))


def _row_lines(menu: Menu, before: SwitchReading, after: SwitchReading, added: Counter[str]) -> Iterator[str]:
    then, now = _by_key(menu, before), _by_key(menu, after)
    for key in dict.fromkeys((*then, *now)):
        named = visible(f"{menu.path} {' '.join(key)}".rstrip())
        old, new = then.get(key, []), now.get(key, [])
        for _ in range(len(old) - len(new)):
            yield f"- {named}"
        for _ in range(len(new) - len(old)):
            if menu.fixed:
                added[named] += 1
            else:
                yield f"+ {named}"
        for was, row in zip(old, new, strict=False):
            yield from _field_lines(menu, named, was, row, added)


def _by_key(menu: Menu, reading: SwitchReading) -> dict[Key, list[Row]]:
    rows: dict[Key, list[Row]] = defaultdict(list)
    for row in reading.rows(menu):
        rows[() if menu.single else same_key(menu, menu.key_of(row))].append(row)
    return rows


def _field_lines(menu: Menu, named: str, was: Row, row: Row, added: Counter[str]) -> Iterator[str]:
    for name, spec in menu.fields.items():
        if spec.volatile or spec.secret or not (menu.counts(name, was) and menu.counts(name, row)):
            continue
        old, new = was.get(name, spec.default), row.get(name, spec.default)
        if _meant_value(menu, name, old) == _meant_value(menu, name, new):
            continue
        if name not in was:
            added[f"{menu.path}: {name}"] += 1
        elif spec.private:
            yield f"~ {named}: {name} (its value is private)"
        else:
            yield f"~ {named}: {name} {visible(old or '(none)')} -> {visible(new or '(none)')}"


def _meant_value(menu: Menu, name: str, text: str | None) -> str:
    try:
        return canonical(menu.fields[name].kind, text) if text else ""
    except ValueError:
        return str(text)


def export_diff(before: bytes, after: bytes) -> tuple[str, ...]:
    """Compare two text exports, without comments, which hold time and release; lines of a unified diff."""
    old, new = (
        [line for line in text.decode(errors="replace").splitlines() if not line.startswith("#")]
        for text in (before, after)
    )
    return tuple(difflib.unified_diff(old, new, "before", "after", lineterm="", n=1))

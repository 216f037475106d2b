"""Reports of several hosts as one: what is alike becomes one row, and no line of any host is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from rich.console import Console
from rich.text import Text

from core.model.errors import printable
from core.util.tables import print_sentence

NEW_FILE_LINES = 20
"""Lines that are shown of a new file."""
ALIKE = 0.5
"""The least share of their rows that two hosts of one group have in common."""

_VALUES = re.compile(r"[0-9a-f]{12,}|[0-9]+")
"""Digests and numbers, which differ by host: of addresses, interfaces, sizes."""


@dataclass(frozen=True)
class Entry:
    """One line of a host, with the lines below it.

    key: the line without what differs by host. kind: content is a line of a file, which is not broken between words.
    is_new_file: whether the lines below are those of a file that is not there yet.
    """

    text: str
    key: str
    kind: Literal["title", "event", "content"]
    style: str = ""
    below: tuple[Entry, ...] = ()
    is_new_file: bool = False


@dataclass(frozen=True)
class Row:
    """The entries of some hosts that stand for one another, in the order of the hosts, with the rows below them."""

    entries: Mapping[str, Entry]
    below: tuple[Row, ...]

    @property
    def texts(self) -> dict[str, list[str]]:
        """Each text, with the hosts that have it."""
        found: dict[str, list[str]] = {}
        for host, entry in self.entries.items():
            found.setdefault(entry.text, []).append(host)
        return found

    def differs(self, hosts: Sequence[str]) -> bool:
        """Whether the row is not the same on all of these hosts."""
        return list(self.texts.values()) != [list(hosts)]

    def all_rows(self) -> Iterator[Row]:
        """Return this row and those below it, in their order."""
        yield self
        for row in self.below:
            yield from row.all_rows()


def content_entries(diff: Iterable[str], hosts: Sequence[str]) -> tuple[Entry, ...]:
    """Return the lines of a unified diff as entries."""
    styles = {"+": "green", "-": "red"}
    return tuple(Entry(printable(line), key_of(line, hosts), "content", styles.get(line[:1], "dim")) for line in diff)


def show_row(console: Console, row: Row, above: Sequence[str], depth: int, *, full: bool) -> None:
    """Print a row and those below it. `above`: the hosts of the line above; a line of others names them, and each line
    below several texts does. `full`: the lines of new files are all shown.
    """
    for text, hosts in row.texts.items():
        label = "" if list(above) == hosts else f"{', '.join(hosts)}: "
        entry = row.entries[hosts[0]]
        shown = Text("  " * depth + label).append(text, entry.style)
        if entry.kind == "content":
            console.print(shown, soft_wrap=True)
        else:
            print_sentence(console, shown)
    hosts = list(row.entries)
    is_long = len(row.below) > NEW_FILE_LINES + 1 and all(entry.is_new_file for entry in row.entries.values())
    end = NEW_FILE_LINES if is_long and not full else len(row.below)
    for below in row.below[:end]:
        show_row(console, below, hosts if len(row.texts) == 1 else (), depth + 1, full=full)
    if hidden := row.below[end:]:
        differ = sum(below.differs(hosts) for below in hidden)
        where = f", {differ} of them not the same on all hosts" if differ else ""
        print_sentence(
            console, Text(f"{'  ' * (depth + 1)}... {len(hidden)} more lines{where}: sparkrack plan --full", "dim")
        )


def key_of(text: str, hosts: Iterable[str]) -> str:
    """Return a text without what differs by host: the names of the hosts, digests and numbers."""
    names = "|".join(map(re.escape, sorted(hosts, key=len, reverse=True)))
    unnamed = re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", "@", text) if names else text
    return _VALUES.sub("0", unnamed)


def merge_hosts(entries: Mapping[str, Sequence[Entry]]) -> tuple[Row, ...]:
    """Return the entries of hosts as rows. Each entry is in exactly one row, and those of a host keep their order."""
    aligned: list[dict[str, Entry]] = []
    for host, own in entries.items():
        aligned = [*_align_rows(aligned, host, own, lambda entry: entry.text)]
    return tuple(
        Row(row, merge_hosts({host: entry.below for host, entry in row.items() if entry.below})) for row in aligned
    )


def group_hosts(entries: Mapping[str, Sequence[Entry]]) -> list[list[str]]:
    """Return the hosts in groups that are alike, in their order."""
    groups: list[tuple[Counter[str], list[str]]] = []
    for host, own in entries.items():
        keys = Counter(_list_keys(own))
        for first, group in groups:
            if 2 * (keys & first).total() >= ALIKE * (keys.total() + first.total()):
                group.append(host)
                break
        else:
            groups.append((keys, [host]))
    return [group for _, group in groups]


def _list_keys(entries: Iterable[Entry], above: str = "") -> Iterator[str]:
    """Return the keys of events, each with those of its titles: not of the lines of files, which are many."""
    for entry in entries:
        key = f"{above}\n{entry.key}"
        if entry.kind == "title":
            yield from _list_keys(entry.below, key)
        else:
            yield key


def _align_rows(
    rows: Sequence[dict[str, Entry]], host: str, own: Sequence[Entry], compared: Callable[[Entry], str]
) -> Iterator[dict[str, Entry]]:
    """Return the rows with the entries of one more host: first equal texts meet, and between them equal keys."""
    then, now = [compared(next(iter(row.values()))) for row in rows], [compared(entry) for entry in own]
    for what, start, end, first, last in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if what == "equal":
            yield from (row | {host: entry} for row, entry in zip(rows[start:end], own[first:last], strict=True))
        elif what == "replace" and compared is not _key_of_entry:
            yield from _align_rows(rows[start:end], host, own[first:last], _key_of_entry)
        else:
            yield from rows[start:end]
            yield from ({host: entry} for entry in own[first:last])


def _key_of_entry(entry: Entry) -> str:
    return entry.key

"""Printing of tables and sentences whose words stay whole on a console of any width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_HANGING = 2
"""Columns by which the second line of a sentence stands further to the right than the first."""


def print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting a word, or a cell of a column with `no_wrap`.

    rich cuts cells that do not fit and puts an ellipsis: two hosts may then have the same name. A file or a pipe gets
    the table in full width, a terminal what `narrow_parts` makes of it.
    """
    least = _least_width(console, table)
    if least > console.width and console.is_terminal:
        for part in narrow_parts(console, table):
            if isinstance(part, Table):
                console.print(part, crop=False)
            else:
                print_sentence(console, part)
        return
    if least > console.width:
        table.width = least
    console.print(table, crop=False)


def narrow_parts(console: Console, table: Table) -> list[Table | Text]:
    """Return a table as parts that fit on a console, each word of them whole.

    In this order, as far as it is needed: the columns come closer; those that are the same in all rows become a
    sentence below the table, the widest first; each row becomes a sentence.
    """
    if _least_width(console, table) <= console.width:
        return [table]
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    same = [at for at, column in enumerate(table.columns) if at and len(rows) > 1 and _has_one_value(column.cells)]
    same.sort(key=lambda at: table.columns[at].min_width or 0)
    kept, moved = list(range(len(table.columns))), list[int]()
    while _least_width(console, closer := _closer_table(table, rows, kept)) > console.width:
        if not same:
            return [part for row in rows for part in _row_parts(table, row)]
        kept.remove(same[-1])
        moved.append(same.pop())
    return [closer, *([Text(f"all: {_row_sentence(table, rows[0], sorted(moved))}")] if moved else [])]


def print_sentence(console: Console, sentence: Text | str, style: str = "") -> None:
    """Print a sentence, which a terminal gets broken between words; a file or a pipe gets it as one line."""
    text = Text(sentence, style) if isinstance(sentence, str) else sentence
    if not console.is_terminal or cell_len(text.plain) <= console.width:
        console.print(text, soft_wrap=True)
        return
    start = len(text.plain) - len(text.plain.lstrip(" "))
    body = text[start:]
    breaks, used = list[int](), 0
    for word in re.finditer(r"\S+\s*", body.plain):
        room = console.width - (start + _HANGING if breaks else start)
        if used and used + cell_len(word[0].rstrip()) > room:
            breaks.append(word.start())
            used = 0
        used += cell_len(word[0])
    for number, line in enumerate(body.divide(breaks)):
        line.rstrip()
        indentation = Text(" " * (start + _HANGING if number else start))
        console.print(indentation.append_text(line), soft_wrap=True)


def _least_width(console: Console, table: Table) -> int:
    """Return the columns that a table needs so that no word is cut."""
    for column in table.columns:
        if column.no_wrap:
            texts = map(_plain_text, (column.header, *column.cells))
            column.min_width = max(cell_len(line) for text in texts for line in text.split("\n"))
    return Measurement.get(console, console.options.update(max_width=10_000), table).minimum


def _row_parts(table: Table, row: Sequence[object]) -> list[Table | Text]:
    """Return a row as two parts: its first cell, and the others as a sentence."""
    first = row[0] if isinstance(row[0], Text) else Text(str(row[0]))
    return [first, Text(f"  {_row_sentence(table, row, range(1, len(row)))}")]


def _closer_table(table: Table, rows: Sequence[Sequence[object]], kept: Sequence[int]) -> Table:
    """Return a table with some of the columns, and one space between them."""
    closer = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style=table.header_style)
    for at in kept:
        column = table.columns[at]
        closer.add_column(column.header, no_wrap=column.no_wrap, justify=column.justify)
    for row in rows:
        closer.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in (row[at] for at in kept)))
    return closer


def _row_sentence(table: Table, row: Sequence[object], columns: Sequence[int]) -> str:
    """Return what a row has in some of its columns, each after the title of its column."""
    parts = ((_plain_text(table.columns[at].header), _plain_text(row[at]).replace("\n", " ")) for at in columns)
    return ", ".join(f"{title} {value}" for title, value in parts if value)


def _has_one_value(cells: Iterable[object]) -> bool:
    return len({_plain_text(cell) for cell in cells}) == 1


def _plain_text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)

"""Printing of tables whose words stay whole on a console of any width."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


def print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting a word, or a cell of a column with `no_wrap`.

    rich cuts cells that do not fit and puts an ellipsis: two hosts may then have the same name. A table that needs more
    columns than the console has is printed in full width, and the terminal wraps its lines.
    """
    for column in table.columns:
        if column.no_wrap:
            words = [column.header, *column.cells]
            texts = (one.plain if isinstance(one, Text) else str(one) for one in words)
            column.min_width = max(cell_len(line) for text in texts for line in text.split("\n"))
    least = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    if least > console.width:
        table.width = least
    console.print(table, crop=False)

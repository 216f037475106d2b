"""Tables and sentences on consoles of different widths: on a terminal nothing is wider than it, and no word is cut."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.util.tables import print_sentence, print_whole
from sparkrack.status.render import show as show_status
from sparkrack.topology import render_text
from sparkrack.watch.render import show as show_watch
from tests.unit.cli.test_watch_screen import report
from tests.unit.status.machines import machines, reference
from tests.unit.topology.test_formats import ALL

KERNEL, DRIVER = "6.17.0-1021-nvidia", "580.159.03"


def paper(width: int, *, terminal: bool = True) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        markup=False,
        legacy_windows=False,
    )


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def nodes(*rows: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("node", "up", "kernel", "driver"):
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


ALIKE = (("spark1", "1h", KERNEL, DRIVER), ("spark2", "2h", KERNEL, DRIVER))


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        pytest.param(
            42,
            [
                "node    up  kernel              driver",
                f"spark1  1h  {KERNEL}  {DRIVER}",
                f"spark2  2h  {KERNEL}  {DRIVER}",
            ],
            id="whole",
        ),
        pytest.param(
            39,
            ["node   up kernel             driver", f"spark1 1h {KERNEL} {DRIVER}", f"spark2 2h {KERNEL} {DRIVER}"],
            id="columns come closer",
        ),
        pytest.param(
            30,
            ["node   up driver", f"spark1 1h {DRIVER}", f"spark2 2h {DRIVER}", f"all: kernel {KERNEL}"],
            id="the widest column that is the same in all rows",
        ),
        pytest.param(
            19,
            ["node   up", "spark1 1h", "spark2 2h", "all: kernel", f"  {KERNEL},", f"  driver {DRIVER}"],
            id="each column that is the same in all rows",
        ),
    ],
)
def test_a_table_on_a_narrow_terminal(width: int, lines: list[str]) -> None:
    console = paper(width)
    print_whole(console, nodes(*ALIKE))
    assert printed(console) == lines


def test_a_row_is_a_sentence_where_nothing_is_the_same() -> None:
    console = paper(23)
    print_whole(console, nodes(("spark1", "1h", KERNEL, DRIVER), ("spark2", "2h", "6.11.0-1016-nvidia", "")))
    assert printed(console) == [
        *("spark1", "  up 1h, kernel", f"    {KERNEL},", f"    driver {DRIVER}"),
        *("spark2", "  up 2h, kernel", "    6.11.0-1016-nvidia"),
    ]


def test_a_single_row_has_nothing_in_common() -> None:
    console = paper(39)
    print_whole(console, nodes(("a", "1h", KERNEL, f"{DRIVER}-and-longer")))
    assert printed(console)[0] == "a"


def test_a_pipe_gets_the_table_in_full_width() -> None:
    console = paper(20, terminal=False)
    print_whole(console, nodes(*ALIKE))
    assert printed(console)[1] == f"spark1  1h  {KERNEL}  {DRIVER}"


@pytest.mark.parametrize(
    ("width", "terminal", "lines"),
    [
        (80, True, ["  spark1: unknown: the switch does not answer"]),
        (24, True, ["  spark1: unknown: the", "    switch does not", "    answer"]),
        (24, False, ["  spark1: unknown: the switch does not answer"]),
    ],
)
def test_a_sentence_breaks_between_words_on_a_terminal(width: int, terminal: bool, lines: list[str]) -> None:
    console = paper(width, terminal=terminal)
    print_sentence(console, "  spark1: unknown: the switch does not answer")
    assert printed(console) == lines


def test_a_word_that_is_wider_than_the_terminal_stays_whole() -> None:
    console = paper(10)
    print_sentence(console, Text("see /etc/netplan/60-sparkrack-fabric.yaml there"))
    assert printed(console) == ["see", "  /etc/netplan/60-sparkrack-fabric.yaml", "  there"]


SCREENS: dict[str, Callable[[Path, Console], None]] = {
    "status": lambda folder, console: show_status(machines(reference(folder)).status(), console),
    "watch": lambda _folder, console: show_watch(report(3), console),
    **{
        f"topology, {name}": lambda _folder, console, picture=picture: render_text.render(picture, console)  # type: ignore[misc]
        for name, picture in ALL.items()
    },
}


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_not_wider_than_the_terminal(name: str, width: int, tmp_path: Path) -> None:
    wide, narrow = paper(1000), paper(width)
    for console in (wide, narrow):
        SCREENS[name](tmp_path, console)
    assert [line for line in printed(narrow) if len(line) > width] == []
    words = {word for line in printed(narrow) for word in re.split(r"[\s,]+", line)}
    first_titles = {"node", "unit", "switch", "port"}
    assert {word for line in printed(wide) for word in re.split(r"[\s,]+", line)} - first_titles <= words

"""`python -m benchmarks.transfers`: models and images from node to node, by sparkrack and by other programs.

A model to 2, 4 and 8 nodes (`nodes`), a model over one hop without a limit of the link (`hop`) and an image to several
nodes (`images`). A limited link is the floor, and not the processor of this machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks import BenchError
from benchmarks.transfer_images import DockerRack, measure_images
from benchmarks.transfer_models import FLOORS, OVER_A_HOP, TO_NODES
from benchmarks.transfer_rack import FILES, Rack, measure, run

PAGE = Path(__file__).parent.parent / "docs/evidence/transfers.md"
END = "<!-- end -->"
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MEMORY = "/dev/shm"  # noqa: S108 - the disk is not measured
POSITIVE = click.IntRange(1)
MEGABITS = click.option("--megabits", default=160, show_default=True, type=POSITIVE, help="Speed of each link.")


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of each table: `--docs`, and `--inside PART` for the run in namespaces that measures a part."""
    page = PAGE.relative_to(PAGE.parents[2])
    command = click.option("--docs", is_flag=True, help=f"Put the table into {page} as well.")(command)
    return click.option("--inside", hidden=True)(command)


@contextmanager
def measured_folder(place: str) -> Iterator[Path]:
    """Make an empty /run and a folder for a rack. Raises ClickException where a measurement fails."""
    try:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    except BenchError as error:
        raise click.ClickException(str(error)) from None


def show_table(columns: str, parts: Sequence[object], conditions: str, docs: bool) -> None:
    """Run this command in namespaces of its own for each part, and show the rows that they print as one table."""
    missing = [name for name in ("ip", "tc", "scp") if not shutil.which(name)]
    if missing or os.geteuid():
        raise click.ClickException(f"needs {', '.join(missing) or 'root'}")
    name = click.get_current_context().info_name
    rows = [f"| {columns} |", "|" + " --- |" * len(columns.split(" | "))]
    for part in parts:
        words = [*NAMESPACES, sys.executable, "-m", "benchmarks.transfers", *sys.argv[1:], f"--inside={part}"]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise click.ClickException(f"{name}: the measurement of {part} failed")
        rows += done.stdout.splitlines()
    date = time.strftime("%Y-%m-%d", time.gmtime())
    load = f"load {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores, {date}"
    text = f"{conditions}, {load}:\n\n" + "\n".join(rows) + "\n"
    click.echo(text)
    if docs:
        head, begin, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- generated: {name} -->\n")
        PAGE.write_text(head + begin + text + END + rest.partition(END)[2], encoding="utf-8")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compare the time of transfers, and what they cost. Needs root, and what `make setup FOR=tests` unpacks."""


@main.command()
@click.option("--megabytes", default=128, show_default=True, type=click.IntRange(8), help="Size of the model.")
@MEGABITS
@table_options
def nodes(megabytes: int, megabits: int, docs: bool, inside: str | None) -> None:
    """Bring a model to 2, 4 and 8 nodes, and compare the time and the processor time."""
    if inside is None:
        columns = "receivers | program | s | s/GB | times of one link | CPU s per GB and hop"
        conditions = f"{megabytes} MiB in {FILES} files in memory, each link {megabits} Mbit/s"
        show_table(columns, (2, 4, 8), conditions, docs)
        return
    receivers, size = int(inside), megabytes << 20
    gigabytes = size / 1e9
    with measured_folder(MEMORY) as folder:
        found = measure(Rack(folder, receivers, size), megabits, TO_NODES, {}, 1)
    for name, [(wall, used)] in found.items():
        figures = f"{wall:.1f} | {wall / gigabytes:.0f} | {wall / (size * 8 / megabits / 1e6):.2f}"
        click.echo(f"| {receivers} | {name} | {figures} | {used / gigabytes / receivers:.1f} |")


@main.command()
@click.option("--megabytes", default=1024, show_default=True, type=click.IntRange(8), help="Size of the large model.")
@click.option("--files", default=10_000, show_default=True, type=POSITIVE, help="Number of the small files.")
@click.option("--rounds", default=3, show_default=True, type=POSITIVE, help="Rounds, by turns.")
@table_options
def hop(megabytes: int, files: int, rounds: int, docs: bool, inside: str | None) -> None:
    """Bring a model over one hop, in a few large files and in many small ones, and compare with what is the floor."""
    if inside is None:
        columns = "model | program | s | s/GB | CPU s/GB | CPU s/GB of each round"
        show_table(columns, ("large", "small"), f"In memory, medians of {rounds} rounds", docs)
        return
    with measured_folder(MEMORY) as folder:
        if inside == "large":
            rack, floors, label = Rack(folder, 1, megabytes << 20), FLOORS, f"{megabytes} MiB in {FILES} files"
        else:
            rack, floors, label = Rack(folder, 1, files * 10_000, files), {}, f"{files} files of 10 kB"
        found = measure(rack, 0, OVER_A_HOP, floors, rounds)
    gigabytes = rack.size / 1e9
    for name, pairs in found.items():
        wall, used = (statistics.median(values) for values in zip(*pairs, strict=True))
        each = ", ".join(f"{one / gigabytes:.2f}" for _, one in pairs)
        click.echo(f"| {label} | {name} | {wall:.1f} | {wall / gigabytes:.2f} | {used / gigabytes:.2f} | {each} |")


@main.command()
@click.argument("packages", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--megabytes", default=64, show_default=True, type=click.IntRange(8), help="Size of the image.")
@MEGABITS
@click.option("--receivers", multiple=True, default=(2, 4, 8), show_default=True, type=click.IntRange(1, 8))
@table_options
def images(
    packages: Path, megabytes: int, megabits: int, receivers: tuple[int, ...], docs: bool, inside: str | None
) -> None:
    """Bring an image to several nodes, and compare the time and the bytes on the wire."""
    if inside is None:
        columns = "receivers | layers there | program | s | MB sent by node 0 | MB sent by all"
        show_table(columns, receivers, f"An image of {megabytes} MiB, each link {megabits} Mbit/s", docs)
        return
    with measured_folder("/var/tmp") as folder:  # noqa: S108
        rack = DockerRack(folder, int(inside), megabytes << 20, 1, packages.absolute())
        click.echo("\n".join(measure_images(rack, megabits)))


if __name__ == "__main__":
    main()

"""`sparkrack serve calibrate`: write what the engine of a running unit printed of its memory to the lock file."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from core.model.errors import printable_line
from serving.options import select_unit
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option
from sparkrack.serving.calibrate import calibrate_unit
from sparkrack.terminal.progress import show_progress


@click.command()
@click.argument("unit", metavar="UNIT")
@rack_option
def calibrate(unit: str, rack: Path) -> None:
    """Write the memory that the engine of a running unit printed to the lock file, for `sparkrack serve check`.

    \b
      sparkrack serve calibrate qwen
      sparkrack serve check qwen

    Each node is asked for the log of the current start: weights, and the cache of keys and values, of the fullest rank.
    They replace the estimate of the overhead, as long as the unit has the model, image, split, quantization and
    kv-cache-dtype that are recorded with them, and neither a longer context nor more sequences. Memory that the node
    keeps for a crash kernel is not part of the share. The unit has to be ready or busy, and to run with the arguments
    that rack.yaml declares and the image of the lock file. A unit with `kv` instead of `memory` has no share of the
    node, so there is nothing to calibrate.

    Exit 0, or 1 when lines are missing or contradict each other, or a node does not answer; then nothing is written.
    """
    found = load(rack)
    chosen = select_unit(found, unit)
    with show_progress(silent=False) as screen:
        done = calibrate_unit(found, chosen, screen)
    measured = done.measured
    parts = {"weights": measured.weights, "keys and values": measured.kv, "state": measured.state}
    sizes = ", ".join(f"{name} {size:.2f}" for name, size in parts.items() if size)
    click.echo(
        f"{unit}: {sizes} GiB and {measured.kv_tokens} tokens of cache on {printable_line(done.fullest)}, the fullest "
        f"of {done.ranks} ranks; overhead {measured.overhead:.2f} GiB"
    )
    click.echo(f"written to {done.lock}")
    next_step(["sparkrack", "serve", "check", unit], rack=rack)

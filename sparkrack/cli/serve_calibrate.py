"""`sparkrack serve calibrate`: write what the engine of a running unit printed of its memory to the lock file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click

from core.model import Rack, image_lock, load, lock_file, model_lock
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from roles.docker.options import DockerOptions
from roles.rdma.options import socket_addresses
from serving import calibration
from serving.calibration import Calibration, Conditions
from serving.desired import service_name
from serving.engines import engine_log
from serving.engines.engine_log import EngineLogError, RankMemory
from serving.engines.memory_fit import GIB
from serving.fit import conditions_of
from serving.launch import launches
from serving.options import ServedUnit, select_unit, served_units
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.serve_bench import BenchError, UnitHead

ANSWER_SECONDS = 120
"""Seconds for a node to search the log of one start."""
ROUNDING = 1.02
"""Factor by which printed figures may be above the share of the unit."""


class CalibrationError(Exception):
    """Why nothing is written. The text is one line."""


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
    if chosen.memory is None:
        raise click.ClickException(
            f"unit {unit} has the size of its cache (kv) and no share of a node (memory), from which its overhead is "
            "computed; declare its overhead"
        )
    nodes = chosen.ranks(found.nodes)
    lock = lock_file.lock_path(found.source)
    record, image = model_lock.read(lock).get(chosen.model), image_lock.known_ids(lock).get(chosen.image)
    if record is None or image is None:
        missing = f"record of {chosen.model}" if record is None else f"ID of the image {chosen.image}"
        raise click.ClickException(f"{lock} has no {missing}, with which the figures are true; nothing is written")
    try:
        with show_progress(silent=False) as screen, open_shells(found, nodes, ANSWER_SECONDS) as shells:
            UnitHead(chosen, nodes[0], shells[nodes[0]]).state()
            answers = {node: _log(found, chosen, node, image, shells[node], screen) for node in nodes}
        logs = {node: log for node, (_, log) in answers.items()}
        drafts = any(key.startswith("speculative-") for key in chosen.args)
        fullest = engine_log.fullest(chosen.engine, logs, stages=chosen.parallel.pipeline, drafts=drafts)
        # Which node the rank was on is unknown with Ray: the least of them makes the overhead the largest.
        reserved = min(reserved for reserved, _ in answers.values())
        measured = _measured(chosen, fullest, reserved, conditions_of(chosen, record, image))
    except (BenchError, UnreachableError, EngineLogError, CalibrationError) as error:
        raise click.ClickException(printable_line(f"{error}; nothing is written")) from None
    try:
        calibration.record(lock, served_units(found), unit, measured)
    except OSError as error:
        raise click.ClickException(f"{lock}: cannot be written: {error.strerror or error}") from None
    parts = {"weights": measured.weights, "keys and values": measured.kv, "state": measured.state}
    sizes = ", ".join(f"{name} {size:.2f}" for name, size in parts.items() if size)
    click.echo(
        f"{unit}: {sizes} GiB and {measured.kv_tokens} tokens of cache on {printable_line(fullest.rank)}, the fullest "
        f"of {len(nodes)} ranks; overhead {measured.overhead:.2f} GiB"
    )
    click.echo(f"written to {lock}")
    next_step(["sparkrack", "serve", "check", unit], rack=rack)


def _log(
    rack: Rack, unit: ServedUnit, node: str, image: str, shell: RootShell, screen: ProgressDisplay
) -> tuple[float, str]:
    """Return the GiB of a node that no program has, and the lines of the current start. Raises CalibrationError."""
    screen.step(node, "read the log of the engine")
    script = resources.shell_text("sparkrack.cli", "files/engine-log.sh")
    words = ("sh", "-c", script, "engine-log", service_name(unit), f"sparkrack-{unit.name}", engine_log.LINES)
    done = shell.run(shlex.join(words))
    if done.rc != 0:
        raise CalibrationError(f"{node}: {done.stderr.strip() or f'exit {done.rc}'}")
    first, _, rest = str(done.stdout).partition("\n")
    size, _, lines = rest.partition("\n")
    if not re.fullmatch("[0-9]{1,12}", size):
        raise CalibrationError(f"{node}: /sys/kernel/kexec_crash_size: unexpected answer {size[:40]!r}")
    memory = rack.options(DockerOptions).memory
    found = launches(rack, unit, socket_addresses(rack), memory, None)
    (launch,) = (one for one in found if one.node == node)
    try:
        running, own_image = json.loads(first)
    except (TypeError, ValueError):
        running, own_image = None, image
    if own_image != image:
        raise CalibrationError(
            f"{node}: unit {unit.name} runs with another image than that of the lock file ({str(own_image)[:19]}, "
            f"not {image[:19]}); apply and start it again"
        )
    if running != list(launch.argv[1:]):
        raise CalibrationError(
            f"{node}: unit {unit.name} runs with other arguments than {rack.source} declares; apply and start it again"
        )
    return int(size) / GIB, lines


def _measured(unit: ServedUnit, rank: RankMemory, reserved: float, conditions: Conditions) -> Calibration:
    """Return the figures of the lock file. Raises CalibrationError when they cannot be true."""
    share = unit.memory or 0.0
    found = Calibration(
        tensor=unit.parallel.tensor,
        pipeline=unit.parallel.pipeline,
        share=share,
        weights=round(rank.weights, 2),
        kv=round(rank.kv, 2),
        kv_tokens=rank.kv_tokens,
        state=round(rank.state, 2),
        reserved=round(reserved, 2),
        measured_with=conditions,
    )
    total = found.weights + found.kv + found.state
    if not (found.weights and found.kv) or total > found.given * ROUNDING:
        raise CalibrationError(
            f"{rank.rank}: the engine printed {found.weights} GiB of weights and {total - found.weights:.2f} GiB of "
            f"cache, and was given {found.given:.1f} GiB"
        )
    return found

"""Record of what the engine of a running unit printed of its memory, in the lock file."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from core.model import Rack, image_lock, lock_file, model_lock
from core.model.errors import printable_line
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import resources
from core.util.command_error import CommandError
from core.util.screen import Screen
from roles.rdma.options import socket_addresses
from serving import calibration
from serving.calibration import Calibration, Conditions
from serving.desired import service_name
from serving.engines.memory_fit import GIB
from serving.engines.registry import ENGINES
from serving.engines.start_memory import EngineLogError, RankMemory
from serving.fit import conditions_of, known_unit
from serving.launch import launches
from serving.options import ServedUnit, served_units
from serving.shared_nodes import container_ceiling
from sparkrack.serving.bench import BenchError, UnitHead

ANSWER_SECONDS = 120
"""Seconds for a node to search the log of one start."""
ROUNDING = 1.02
"""Factor by which printed figures may be above the share of the unit."""


class CalibrationError(Exception):
    """Why nothing is written. The text is one line."""


@dataclass(frozen=True)
class UnitCalibration:
    """What was written to the lock file. `fullest`: the rank with the most, of `ranks`."""

    lock: Path
    measured: Calibration
    fullest: str
    ranks: int


def calibrate_unit(rack: Rack, unit: ServedUnit, screen: Screen) -> UnitCalibration:
    """Write the memory that the engine of a running unit printed to the lock file. Raises CommandError; then nothing is
    written.
    """
    if unit.memory is None:
        raise CommandError(
            f"unit {unit.name} has the size of its cache (kv) and no share of a node (memory), from which its overhead "
            "is computed; declare its overhead"
        )
    log = ENGINES[unit.engine].log
    if log is None:
        raise CommandError(f"{ENGINES[unit.engine].title} prints no memory that is read here; declare overhead")
    nodes = unit.ranks(rack.nodes)
    lock = lock_file.lock_path(rack.source)
    records = model_lock.read_declared(lock, rack.models)
    record, image = records.get(unit.model), image_lock.known_ids(lock).get(unit.image)
    if record is None or image is None:
        missing = f"record of {unit.model}" if record is None else f"ID of the image {unit.image}"
        raise CommandError(f"{lock} has no {missing}, with which the figures are true; nothing is written")
    try:
        with open_shells(rack, nodes, ANSWER_SECONDS) as shells:
            UnitHead(unit, nodes[0], shells[nodes[0]]).state()
            answers = {
                node: _read_engine_log(rack, unit, node, image, shells[node], screen, log.lines) for node in nodes
            }
        logs = {node: log for node, (_, log) in answers.items()}
        drafts = any(key.startswith("speculative-") for key in unit.args)
        fullest = log.fullest(logs, unit.parallel.pipeline, drafts)
        # Which node the rank was on is unknown with Ray: the least of them makes the overhead the largest.
        reserved = min(reserved for reserved, _ in answers.values())
        measured = _make_calibration(
            unit, fullest, reserved, conditions_of(unit, record, image, known_unit(unit, records).further)
        )
    except (BenchError, UnreachableError, EngineLogError, CalibrationError) as error:
        raise CommandError(printable_line(f"{error}; nothing is written")) from None
    try:
        calibration.record(lock, served_units(rack), unit.name, measured)
    except OSError as error:
        raise CommandError(f"{lock}: cannot be written: {error.strerror or error}") from None
    return UnitCalibration(lock, measured, fullest.rank, len(nodes))


def _read_engine_log(
    rack: Rack, unit: ServedUnit, node: str, image: str, shell: RootShell, screen: Screen, pattern: str
) -> tuple[float, str]:
    """Return the GiB of a node that no program has, and the lines of the current start. Raises CalibrationError."""
    screen.step(node, "read the log of the engine")
    script = resources.shell_text("sparkrack.serving", "files/engine-log.sh")
    words = ("sh", "-c", script, "engine-log", service_name(unit), f"sparkrack-{unit.name}", pattern)
    done = shell.run(shlex.join(words))
    if done.rc != 0:
        raise CalibrationError(f"{node}: {done.stderr.strip() or f'exit {done.rc}'}")
    first, _, rest = str(done.stdout).partition("\n")
    size, _, lines = rest.partition("\n")
    if not re.fullmatch("[0-9]{1,12}", size):
        raise CalibrationError(f"{node}: /sys/kernel/kexec_crash_size: unexpected answer {size[:40]!r}")
    found = launches(rack, unit, socket_addresses(rack), container_ceiling(rack, unit), None)
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


def _make_calibration(unit: ServedUnit, rank: RankMemory, reserved: float, conditions: Conditions) -> Calibration:
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

"""`sparkrack serve`: what can be known of a served model before it starts, and the commands that start and stop it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from core.model import Rack, image_lock, load, lock_file
from core.model.errors import printable_line
from core.util import resources
from core.util.command_error import CommandError
from roles.rdma.options import socket_addresses
from serving.engines.command_line import judge
from serving.engines.memory_fit import (
    OVERHEAD_GIB,
    Demand,
    KvFormat,
    default_parallel,
    fit,
    fits_on,
)
from serving.engines.model_shape import ModelConfigError, read
from serving.engines.option_table import WITH_TABLE, Engine
from serving.launch import launches
from serving.options import select_unit, served_units
from serving.shared_nodes import container_ceiling
from sparkrack.cli.options import json_option, rack_option
from sparkrack.cli.serve_bench import bench
from sparkrack.cli.serve_calibrate import calibrate
from sparkrack.cli.serve_export import export_unit
from sparkrack.cli.serve_import import import_unit
from sparkrack.cli.serve_logs import logs
from sparkrack.cli.serve_start_stop import recreate, restart, start, stop, use
from sparkrack.cli.serve_status import status
from sparkrack.cli.serve_tune import tune
from sparkrack.serving.check_units import WeightSource, check_units, model_record, recorded_model
from sparkrack.serving.render_check import COUNTS, launch_lines, show_model, show_units

_UNITS = {"G": 10**9, "GB": 10**9, "GIB": 2**30, "T": 10**12, "TB": 10**12, "TIB": 2**40}


class _Size(click.ParamType[float]):
    """A size in bytes, written with its unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", str(value))
        if not found or found[2].upper() not in _UNITS:
            self.fail(f"{value!r} is not a size with its unit, such as 124GB or 115GiB", param, ctx)
        return float(found[1]) * _UNITS[found[2].upper()]


@click.group()
def serve() -> None:
    """Start, stop and watch served models, and know before whether they fit, what would run, and with which options."""


for _command in (start, stop, restart, recreate, use, status, logs, bench, tune, calibrate, import_unit, export_unit):
    serve.add_command(_command)


@serve.command()
@click.argument("unit", required=False, metavar="[UNIT]")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="config.json of a model, or the folder that holds it; hf_quant_config.json beside it is read, too.",
)
@click.option("--model", metavar="NAME", help="One of the models of rack.yaml, as the lock file has recorded it.")
@click.option(
    "--weights",
    type=_Size(),
    metavar="SIZE",
    help="Size of all weight files, such as 124GB; else that of the lock file, or as counted from the configuration.",
)
@click.option(
    "--node-count",
    type=click.IntRange(1, 8),
    help="Only this number of nodes.  [default: that of the unit; of a model 1, 2, 3, 4 and 8]",
)
@click.option(
    "--context",
    type=click.IntRange(1),
    default=131072,
    show_default=True,
    help="Tokens of all sequences together that keys and values are kept for.",
)
@click.option("--sequences", type=click.IntRange(1), default=4, show_default=True, help="Sequences at once.")
@click.option(
    "--kv",
    type=click.Choice(["fp8", "bf16"]),
    default="fp8",
    show_default=True,
    help="Number format of keys and values.",
)
@click.option(
    "--overhead",
    type=click.FloatRange(0, 64),
    default=OVERHEAD_GIB,
    show_default=True,
    help="GiB on each node for activations, graphs and NCCL; reports are between 4 and 20.",
)
@rack_option
@json_option
def check(
    unit: str | None,
    config: Path | None,
    model: str | None,
    weights: float | None,
    node_count: int | None,
    context: int,
    sequences: int,
    kv: KvFormat,
    overhead: float,
    rack: Path,
    as_json: bool,
) -> None:
    """Compute whether units of rack.yaml, or any model, fit on GB10 nodes. Nothing is connected to.

    \b
      sparkrack serve check
      sparkrack serve check qwen --node-count 3
      sparkrack serve check --model qwen3-235b --context 65536
      sparkrack serve check --config Qwen3-235B-A22B --weights 124GB

    Without --model and --config: the units, or UNIT, with their own split, memory and context, and with what the lock
    file has of their models. The overhead is that of the last good start, where the lock file has measured it, else
    that of the unit, else 8 GiB.

    With one of them the model is judged by the options. A power of two is split into tensor slices (TP), another number
    of nodes into stages of layers (PP). The sum is that of the fullest node, in GiB: yes up to 85 % of the 121.69 GiB
    of a GB10, tight up to 90 %, where little is left for the host.

    Exit 0 when all units fit, or are accepted by fit.override; with a model when it fits on one of the numbers of
    nodes. Else 1: also when the lock file has no record of a model.
    """
    if sum(value is not None for value in (unit, config, model)) > 1:
        raise click.UsageError("UNIT, --config and --model exclude each other; name one")
    if config is None and model is None:
        _check_units(load(rack), unit, node_count, as_json=as_json)
        return
    try:
        shape, recorded = (read(config), None) if config else recorded_model(load(rack), model or "")
    except ModelConfigError as fault:
        raise CommandError(printable_line(str(fault))) from None
    source: WeightSource = "option" if weights is not None else "config" if recorded is None else "lock file"
    weights = recorded if weights is None else weights
    demand = Demand(context, sequences, kv, overhead)
    if node_count:
        fits = {node_count: fit(shape, default_parallel(node_count), demand, weights)}
    else:
        fits = fits_on(shape, demand, weights, COUNTS)
    if as_json:
        record = model_record(str(config or model), shape, weights, source, demand, fits)
        click.echo(record.model_dump_json(by_alias=True, indent=1))
    else:
        show_model(shape, weights, source, demand, fits)
    sys.exit(0 if any(one.verdict in ("yes", "tight") for one in fits.values()) else 1)


def _check_units(rack: Rack, name: str | None, node_count: int | None, *, as_json: bool) -> None:
    context = click.get_current_context()
    for option in ("weights", "context", "sequences", "kv", "overhead"):
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{option} is for --config and --model; a unit has its own in rack.yaml")
    if name is None and not served_units(rack):
        raise CommandError(f"{rack.source} has no serving section; name a model with --model or --config")
    units = [select_unit(rack, name)] if name else list(served_units(rack).values())
    found = check_units(rack, units, node_count)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, indent=1))
    else:
        show_units(found)
    sys.exit(0 if all(one.fits in ("yes", "accepted") for one in found.units) else 1)


@serve.command()
@click.argument("unit", metavar="UNIT")
@click.option("--node", metavar="NODE", help="Only what this node of the unit runs.")
@rack_option
def render(unit: str, node: str | None, rack: Path) -> None:
    """Print what each node of a unit runs: command, arguments of docker, environment. Nothing is connected to.

    \b
      sparkrack serve render qwen
      sparkrack serve render qwen --node spark2

    One argument a line, without quotes. No secret is printed, or is an argument: the key of the API is in a file of the
    head. The image is that of the lock file, by its ID, once it is recorded there.

    Exit 0, or 1 when rack.yaml has an error or no such unit.
    """
    loaded = load(rack)
    chosen = select_unit(loaded, unit)
    ranks = chosen.ranks(loaded.nodes)
    if node is not None and node not in ranks:
        raise CommandError(f"{node} is not a node of unit {unit}; its nodes are {', '.join(ranks)}")
    pin = image_lock.read(lock_file.lock_path(loaded.source)).get(chosen.image)
    memory = container_ceiling(loaded, chosen)
    for launch in launches(loaded, chosen, socket_addresses(loaded), memory, pin.id if pin else None):
        if node in (None, launch.node):
            for text in launch_lines(launch, len(ranks)):
                click.echo(text)


def _print_program(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(resources.file_text("serving.engines", "dump_options.py"), nl=False)
        context.exit()


@serve.command("options", context_settings={"allow_interspersed_args": False})
@click.option(
    "--program",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_program,
    help="Print the program that lists the options of the engine in an image, and end.",
)
@click.argument("engine", type=click.Choice(sorted(WITH_TABLE, reverse=True)))
@click.argument("version")
@click.argument("line", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def judge_options(engine: Engine, version: str, line: tuple[str, ...]) -> None:
    """Judge the command line of an engine by the options that the release has. Nothing is connected to.

    \b
      sparkrack serve options vllm 0.21.0 MODEL --tensor-parallel-size 2 --prefix-caching
      sparkrack serve options sglang 0.5.12 --model-path MODEL --tp-size 8

    ARGUMENTs are what follows `vllm serve`, `python -m sglang.launch_server` or `llama-server`. vLLM 0.10.2 to 0.33.0,
    SGLang 0.5.4 to 0.5.23 and llama.cpp b10001 to b11434 are known, and what the operator added to
    ~/.config/sparkrack/engines; a later one is judged by the newest. Another build of a release may have more options.

    Exit 0 when the release accepts the line, else 1 with a line for each problem.
    """
    verdict = judge(engine, version, line)
    if verdict.note:
        click.echo(printable_line(verdict.note))
    for problem in verdict.problems:
        click.echo(printable_line(problem.message), err=True)
    if verdict.accepted:
        click.echo(f"accepted by {engine} {verdict.release}")
    sys.exit(0 if verdict.accepted else 1)

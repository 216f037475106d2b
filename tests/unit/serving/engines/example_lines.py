"""The command line of each rank in examples/, for the option table and for the parsers of real releases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.model import load
from roles.rdma.options import socket_addresses
from serving.engines.option_table import Engine
from serving.launch import rank_argv
from serving.options import served_units
from tests.generated import REPOSITORY

EXAMPLES = sorted((Path(REPOSITORY) / "examples").glob("*.yaml"))
_PROGRAMS: dict[Engine, tuple[str, ...]] = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python3", "-m", "sglang.launch_server"),
}


class ExampleLine(NamedTuple):
    """What the engine of one rank gets, without the name of the program: what `judge` takes.

    `example`: the name of the file, without its ending. SGLang's head has `--config` with a file that only a node has.
    """

    example: str
    unit: str
    rank: int
    engine: Engine
    version: str
    argv: tuple[str, ...]


def lines() -> Iterator[ExampleLine]:
    """Yield the line of each rank that starts an engine; ranks above 0 of vllm-ray start Ray only, and have none."""
    for path in EXAMPLES:
        rack = load(path)
        addresses = socket_addresses(rack)
        for unit in served_units(rack).values():
            for rank in range(len(unit.ranks(rack.nodes))):
                if engine_argv := without_program(unit.family, rank_argv(rack, unit, rank, addresses)):
                    yield ExampleLine(path.stem, unit.name, rank, unit.family, unit.version, engine_argv)


def without_program(engine: Engine, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what follows the program of the engine in a command; empty if the command does not start it."""
    program = _PROGRAMS[engine]
    for place in range(len(argv)):
        if argv[place : place + len(program)] == program:
            return argv[place + len(program) :]
    return ()

"""What the project knows of an inference engine, and what the command of a rank is made of. Pure.

Each folder of serving/engines/ has ENGINES, one ServingEngine or more. serving/engines/registry.py finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from serving.engines.bench_tool import BenchTool
from serving.engines.host_memory import HostMemory, none
from serving.engines.start_memory import StartLog
from serving.engines.start_phases import PhaseLines

if TYPE_CHECKING:
    from core.model.errors import RuleViolation
    from serving.options import ServedUnit

INSIDE_KEY = "/run/sparkrack/key"
"""Place in the container of the file with the key of the API, where an engine reads one."""
RAY_PORT = 6379
"""The port of Ray on the head of a unit, where it is used. Only one such unit is up on a node."""

RANK_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("nnodes", "node-rank", "headless"), "follows from the nodes of the unit"),
    **dict.fromkeys(
        ("master-addr", "master-port", "dist-init-addr", "nccl-init-addr"), "follows from the first node of the unit"
    ),
    **dict.fromkeys(("host", "port"), "follows from where the unit listens"),
    "api-key": "is a secret, which no command line holds",
    **dict.fromkeys(
        ("tensor-parallel-size", "tp-size", "pipeline-parallel-size", "pp-size"), "follows from the split of the model"
    ),
    "distributed-executor-backend": "follows from the engine",
    **dict.fromkeys(("model", "model-path"), "follows from the model of the unit"),
    **dict.fromkeys(("max-model-len", "context-length"), "follows from the key context of the unit"),
    **dict.fromkeys(("max-num-seqs", "max-running-requests"), "follows from the key sequences of the unit"),
    **dict.fromkeys(("gpu-memory-utilization", "mem-fraction-static"), "follows from the key memory of the unit"),
    "kv-cache-memory-bytes": "follows from the key kv of the unit",
    "shutdown-timeout": "follows from the key drain of the unit",
    **dict.fromkeys(("enable-expert-parallel", "ep-size"), "follows from the key parallel.expert of the unit"),
    **dict.fromkeys(("runner", "task", "is-embedding"), "follows from the key kind of the unit"),
    "enable-metrics": "is set for each unit: its metrics tell an engine that computes from one that hangs",
    "disable-log-stats": "turns off the metrics that tell an engine that computes from one that hangs",
    "config": "names a file with more options, which no check reads",
}
"""Options of engines with ranks that the launcher sets itself, or that take from it what it needs, and why. One that is
written for the other engine is none of its unknown options."""


@dataclass(frozen=True)
class RankPlace:
    """What the command of one rank is made of.

    `model`: the folder of the model in the container. `names`: the option of the name by which clients ask for the
    model, where `args` has none. `args`: the options of the unit as arguments. `known`: the options that the release
    has. `kv`: bytes of the cache, None without. `drain`: seconds. `rank`: from 0, the head, of `ranks`. `head`, `own`:
    addresses for traffic beside RDMA. `meeting`: the port of the head by which ranks find each other. `api`: where the
    head listens.
    """

    unit: ServedUnit
    model: str
    names: tuple[str, ...]
    args: tuple[str, ...]
    known: frozenset[str]
    kv: int | None
    drain: int
    rank: int
    ranks: int
    head: IPv4Address
    own: IPv4Address
    meeting: int
    api: IPv4Address

    @property
    def listen(self) -> tuple[str, ...]:
        """The options of host and port, which the head alone has."""
        return () if self.rank else ("--host", str(self.api), "--port", str(self.unit.api.port))


@dataclass(frozen=True)
class KeyForm:
    """How an engine gets the key of its API, which no command line holds: by a variable, or by a file.

    `variable`: its name. Else `option` names the file `path` in the container, which has the key alone, or in YAML.
    """

    variable: str = ""
    option: str = ""
    path: str = ""
    yaml: bool = False

    def text(self, key: str) -> str:
        """Return the content of the file of a node that has the key."""
        if self.variable:
            return f"{self.variable}={key}\n"
        return f"api-key: {json.dumps(key)}\n" if self.yaml else f"{key}\n"

    @property
    def line(self) -> str:
        """The line of that file, without the key."""
        return "api-key: KEY" if self.yaml else self.text("KEY").strip()

    @property
    def ending(self) -> str:
        """The ending of the name of such a file."""
        return "env" if self.variable else "yaml" if self.yaml else "txt"

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments of the head by which it finds its key."""
        return (self.option, self.path) if self.path else ()

    def docker(self, file: str) -> tuple[str, str]:
        """Return the arguments of docker by which the container gets the file of the node."""
        return ("--volume", f"{file}:{self.path}:ro") if self.path else ("--env-file", file)


@dataclass(frozen=True)
class Progress:
    """Metrics of an engine. `counters`: one that rises is progress. `gauges`: one that changes while the engine has
    requests is progress, too. `requests`: gauges of the requests that it computes, and of those that wait.
    """

    counters: tuple[str, ...] = ()
    gauges: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptionSyntax:
    """How the parser of an engine reads a line.

    `model_first`: the model stands before the options. `paths`: `--option.part value` is a part of a JSON value, and
    `_` in a name is `-`. `plugins`: options that take more names than the table has where a file with a plugin is
    given, and the option of that file. `by_minor`: a version between two known releases is judged by the one with the
    same first two numbers. `equals`: `--option=value` is an option with its value.
    """

    model_first: bool = False
    paths: bool = False
    plugins: Mapping[str, str] = field(default_factory=dict)
    by_minor: bool = False
    equals: bool = True


def no_variables(_: RankPlace) -> Mapping[str, str]:
    """Return the variables of an engine that needs none."""
    return {}


def no_rules(_unit: ServedUnit, _ranks: int) -> Iterator[RuleViolation]:
    """Yield nothing: an engine without rules of its own."""
    return iter(())


@dataclass(frozen=True)
class ServingEngine:
    """One engine of rack.yaml.

    `name`: in rack.yaml. `family`: the engine whose options it has. `title`: in sentences. `argv`: the command of a
    rank, without the key. `key`: how it gets its key. `progress`: its metrics. `looks`: what the gate looks for in the
    image, by unit, rank and number of ranks, in the form of files/serve_start.py.

    `package`: of Python, whose version the image has. `environment`: variables beside those of all engines. `owned`:
    options that the launcher sets itself, or that take from it what it needs, and why. `table`: its options by
    release; None for an engine that has no table. `own_address`: the variable with the address of each node. `ray`:
    whether Ray joins its nodes. `host`: what its options take of the host's memory, from `args`, `env` and the number
    of ranks. `bench`: its measuring tool. `log`: what it prints of its memory. `phases`: what it prints of its start.
    `serves_any_name`: whether it answers whatever model a request names, so that the name of its model must be looked
    up. `known_paths`: whether it is known to have /v1/models and /health. `guards_metrics`: whether its /metrics
    needs the key. `weights`: bytes that each node loads, from the sizes of the files of its models by the path in the
    container, and the paths below /models that its options name, where the sum of declared sizes is the fit; None
    where the fit is computed. `rules`: what is wrong with a unit of so many ranks. `advice`: what is worth a warning.
    """

    name: str
    family: str
    title: str
    argv: Callable[[RankPlace], Sequence[str]]
    key: Callable[[ServedUnit], KeyForm]
    progress: Callable[[ServedUnit], Progress]
    looks: Callable[[ServedUnit, int, int], Sequence[str]]
    package: str = ""
    environment: Callable[[RankPlace], Mapping[str, str]] = no_variables
    owned: Mapping[str, str] = field(default_factory=dict)
    table: Path | None = None
    syntax: OptionSyntax = field(default_factory=OptionSyntax)
    own_address: str = ""
    ray: bool = False
    host: Callable[[Mapping[str, object], Mapping[str, str], int], HostMemory] = none
    bench: BenchTool | None = None
    log: StartLog | None = None
    phases: PhaseLines = field(default_factory=dict)
    serves_any_name: bool = False
    known_paths: bool = True
    guards_metrics: bool = False
    weights: Callable[[ServedUnit, Mapping[str, int], Sequence[str]], float | None] | None = None
    rules: Callable[[ServedUnit, int], Iterator[RuleViolation]] = no_rules
    advice: Callable[[ServedUnit, int], Iterator[RuleViolation]] = no_rules

    def ports(self, ranks: int, meeting: int) -> Mapping[int, str]:
        """Return the ports of the head by which so many ranks meet, and what for. `meeting`: that of the unit."""
        if ranks == 1:
            return {}
        return {meeting: "where the ranks meet", **({RAY_PORT: "where Ray listens"} if self.ray else {})}

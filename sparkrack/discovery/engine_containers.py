"""Inference engines of a node: units of another rack.yaml, and containers that were started by hand. They are reported,
and suggested as units; nothing of them is changed. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.util.scrub import scrub
from serving.launch import UNIT_FILES
from sparkrack.discovery.draft import Gap
from sparkrack.serving.recipe import ImportedUnit, RecipeChoices, import_recipe, unit_name
from sparkrack.serving.recipe_text import RecipeError

TOOL_SECONDS = 5
QUESTION = f"""for g in {UNIT_FILES}/*.gate.json; do
[ -f "$g" ] || continue; n=${{g%.gate.json}}
a=$(base64 -w0 < "$n.json") && b=$(base64 -w0 < "$g") || exit 9
echo "unit ${{n##*/}} $a $b"
done
p=$(cat /run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$p/comm" 2>/dev/null)" = dockerd ] || exit 0
i=$(timeout {TOOL_SECONDS} docker ps -q --no-trunc) || exit 9
[ -z "$i" ] || timeout {TOOL_SECONDS} docker inspect --format \
'container [{{{{json .Id}}}},{{{{json .Name}}}},{{{{json .Config.Image}}}},{{{{json .Path}}}},{{{{json .Args}}}}]' $i ||
exit 9
for c in $i; do timeout {TOOL_SECONDS} docker top "$c" -eo pid,args 2>/dev/null | sed "1d; s/^ */process $c /"; done"""
"""Prints the units that the node has files of, the command of each running container, and its processes: launchers of
others start a container that sleeps, and the engine in it by `docker exec`. A container that ends in between has no
processes. Its environment, which may hold secrets, does not leave the node.
"""
_ENGINE = re.compile(
    r"(?:^|[\s/'\"])vllm\s+serve\b|\bvllm\.entrypoints\.|\bsglang\.launch_server\b|(?:^|[\s/'\"])sglang\s+serve\b"
    r"|(?:^|[\s/])(?:llama-server|trtllm-serve|ollama\s+serve|atlas\s+serve)\b|(?:^|\s)/opt/nim/"
)
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash")
_LONGEST = 600
"""Characters of a command that are shown."""


@dataclass(frozen=True)
class EngineContainer:
    """A running container with an engine: `argv` is its command, as docker has it."""

    name: str
    image: str
    argv: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The command without secrets, as it is shown."""
        text = scrub(shlex.join(self.argv))
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class InstalledUnit:
    """A unit of which a node has files, as they describe it. Those of an earlier version do not name the engine."""

    name: str
    engine: str
    nodes: tuple[str, ...]
    image: str
    model: str
    port: int


@dataclass(frozen=True)
class Engines:
    """What a node has of inference engines."""

    units: tuple[InstalledUnit, ...] = ()
    containers: tuple[EngineContainer, ...] = ()


def parse_engines(text: str) -> Engines:
    """Return what a node has, from the output of QUESTION. Raises ValueError for any other output."""
    units: list[InstalledUnit] = []
    containers: dict[str, EngineContainer] = {}
    processes: dict[str, list[tuple[str, ...]]] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "unit":
            units.append(_installed_unit(*rest.split(" ")))
        elif kind == "container":
            identity, found = _parse_container(json.loads(rest))
            containers[identity] = found
        elif kind == "process":
            identity, _pid, *argv = rest.split()
            processes.setdefault(identity, []).append(tuple(argv))
        else:
            raise ValueError(f"unexpected output {line[:40]!r}")
    own = {f"sparkrack-{unit.name}" for unit in units}
    return Engines(
        tuple(units),
        tuple(
            engine
            for identity, container in containers.items()
            if container.name not in own and (engine := _engine_in(container, processes.get(identity, ())))
        ),
    )


def _engine_in(container: EngineContainer, processes: Iterable[tuple[str, ...]]) -> EngineContainer | None:
    """Return a container with the command of the engine in it: its own, else that of a process; None without one."""
    commands = (container.argv, *processes)
    argv = next((argv for argv in commands if _ENGINE.search(" ".join(argv))), None)
    return replace(container, argv=argv) if argv else None


def _installed_unit(name: str = "", described: str = "", gate: str = "") -> InstalledUnit:
    try:
        unit, checks = (json.loads(base64.b64decode(raw, validate=True)) for raw in (described, gate))
        return InstalledUnit(
            name=str(unit["name"]),
            engine=str(unit.get("engine", "an engine")),
            nodes=tuple(str(rank["node"]) for rank in unit["ranks"]),
            image=str(checks["image"]["name"]),
            model=str(checks["model"]["name"]),
            port=int(unit["api"]["port"]),
        )
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"the files of unit {name[:40]!r} are not those of sparkrack") from None


def _parse_container(row: Any) -> tuple[str, EngineContainer]:
    """Return the ID of a container, and what it is."""
    match row:
        case [str(identity), str(name), str(image), str(path), list(words)] if all(isinstance(w, str) for w in words):
            return identity, EngineContainer(name.removeprefix("/"), image, (path, *words))
    raise ValueError("unexpected output of docker inspect")


def engine_gaps(nodes: Mapping[str, Engines]) -> Iterator[Gap]:
    """Yield a line for each unit and container that the file does not declare."""
    units = {unit.name: unit for engines in nodes.values() for unit in engines.units}
    for unit in units.values():
        there = ", ".join(name for name, engines in nodes.items() if unit in engines.units)
        yield Gap(
            ("serving", "units", unit.name),
            f"{there} {'has' if ',' not in there else 'have'} files of it from another rack.yaml: {unit.engine} on "
            f"{', '.join(unit.nodes)}, image {unit.image}, model {unit.model}, port {unit.port}; declare it with that "
            f"name and these nodes before `serving` is managed, or remove its files ({UNIT_FILES})",
        )
    for name, engines in nodes.items():
        for one in engines.containers:
            yield Gap(
                ("nodes", name),
                f"container {one.name} (image {one.image}) runs an engine: {one.shown}; it stays as it is, and no key "
                "of the file declares it",
            )


def suggestions(nodes: Mapping[str, Engines]) -> list[str]:
    """Return entries of rack.yaml for the containers that were started by hand, as lines of comment."""
    lines = []
    for name, engines in nodes.items():
        for one in engines.containers:
            lines += [f"container {one.name} of {name} as a unit:", *_suggest_unit(one, name)]
    return ["", "Suggested, and not in force:", *lines] if lines else []


def _suggest_unit(one: EngineContainer, node: str) -> Iterable[str]:
    words = one.argv
    if words[0] in _SHELLS and len(words) > 2 and words[-2] in ("-c", "-lc"):
        command = words[-1]
    else:
        begin = next((place for place, word in enumerate(words) if word.rpartition("/")[2] in _BEGINS), 0)
        command = shlex.join(words[begin:])
    recipe = json.dumps({"container": one.image, "command": scrub(command)})
    choices = RecipeChoices(unit_name(one.name), nodes=(node,))
    try:
        found, written = _import_started(recipe, choices)
    except RecipeError as error:
        return [f"  none: {scrub(problem)}" for problem in error.problems]
    return [
        *(f"  {line}" for line in found.yaml().splitlines()),
        *(f"  ({line})" for line in (*written, *found.warnings)),
    ]


_SUGGESTED: Mapping[str, int | float] = {"sequences": 8, "memory": 0.85}
"""What a command that was started by hand often leaves to the engine, and a suggestion has instead."""


def _import_started(recipe: str, choices: RecipeChoices) -> tuple[ImportedUnit, list[str]]:
    """Return the unit of a command, and a line for each value that it does not have. Raises RecipeError."""
    try:
        return import_recipe(recipe, choices), []
    except RecipeError as error:
        keys = [problem.partition(":")[0] for problem in error.problems]
        if not set(keys) <= _SUGGESTED.keys():
            raise
    suggested: dict[str, Any] = {key: _SUGGESTED[key] for key in keys}
    lines = [f"{key}: the command leaves it to the engine; {value} is written" for key, value in suggested.items()]
    return import_recipe(recipe, replace(choices, **suggested)), lines


_BEGINS = frozenset(["vllm", "sglang", "python", "python3"])
"""Programs with which the command of an engine begins, behind the entrypoint of the image."""

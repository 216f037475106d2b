"""The options of a recipe's command line as the keys of a unit and its `args`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from serving.engines.command_line import find_same_option, judge, split_options
from serving.engines.memory_fit import MEMORY_GIB
from serving.engines.option_table import Engine, EngineOption, table
from serving.engines.registry import FAMILIES
from sparkrack.serving.recipe_text import RecipeNotes, json_or_text

_LAUNCHED = frozenset(
    ["nnodes", "node-rank", "headless", "master-addr", "master-port", "dist-init-addr", "nccl-init-addr"],
)
"""Options that sparkrack sets from the nodes of the unit."""
_WATCHED = frozenset(["enable-metrics", "disable-log-stats"])
"""Options about the metrics by which sparkrack tells an engine that computes from one that hangs."""
_SET_FOR_LLAMA = frozenset(
    (
        *("mmap", "no-mmap", "mlock", "load-mode", "direct-io", "fit", "fit-target", "fit-ctx", "cache-ram", "metrics"),
        *("no-ui", "no-webui", "reuse-port", "sleep-idle-seconds"),
    )
)
"""Options of llama-server that sparkrack sets, and that change nothing of what it answers."""
_COMPUTED = frozenset(["auto", "generate", "pooling", "embed", "embedding", "score", "classify", "is-embedding"])
"""What `--runner`, `--task` and `--is-embedding` may say for a unit."""
_EMBEDS = re.compile(r"(^|[^a-z])(embed|embedding|e5|bge|gte)([^a-z]|$)", re.IGNORECASE)
_RANKS_TEXTS = re.compile(r"rerank", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass
class RecipeOptions:
    """What a command line has, by the keys of a unit.

    `name`: of the unit. `family`: the engine. `share_is_chosen`: whether its share of the memory is not that of the
    recipe. `keys`: context, sequences, memory and kv as they are written. `served`: the model that the command
    names. `computed`: what the engine computes by its options.
    """

    notes: RecipeNotes
    name: str
    share_is_chosen: bool = False
    ray: bool = False
    family: Engine = ""
    args: dict[str, Any] = field(default_factory=dict)
    parallel: dict[str, Any] = field(default_factory=lambda: {"tensor": 1, "pipeline": 1})
    api: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    served: str = ""
    revision: str = ""
    computed: str = ""

    def take(self, kind: Engine, version: str, argv: Sequence[str]) -> None:
        """Take all options of a command line.

        Args:
            kind: the engine.
            version: a version whose options the table has.
            argv: what follows the program.
        """
        release = table(kind).judging(version) or ""
        options = table(kind).of(release)
        self.family = kind
        spelled = _name_as_parsed if FAMILIES[kind].syntax.equals else _name_as_llama_reads
        words = [word.replace(part, full, 1) for word in argv for part, full in (spelled(options, word),)]
        if words and not words[0].startswith("-"):
            self.served = words.pop(0)
        for name, path, values in _unknown_values(split_options(kind, options, words), options):
            if not name:
                self.notes.missing(f"command: {' '.join(values)} belongs to no option; correct a copy of the recipe")
                continue
            option = options.get(name) or options.get(find_same_option(table(kind), release, name) or "")
            if option is None:
                self._take_unknown_option(name, path.removeprefix("."), values)
            elif not values and option.count not in (0, "?", "*"):
                self.notes.missing(f"command: {name} has no value; correct a copy of the recipe")
            else:
                # llama-server's table does not tell each name that turns an option off from those that turn it on.
                kept = kind == "llama.cpp" and name.startswith("--") and name in options
                long = name if kept else _long_name(options, name, option)
                if name not in options and option.count != 0:
                    self.notes.warn(f"{name}: is called {long} in this release")
                self._take_option(long, option, path.removeprefix("."), values, options)

    def _take_unknown_option(self, name: str, path: str, values: list[str]) -> None:
        """Take an option that the release does not have; `accept` then gives the reason why the image has it."""
        key = name.lstrip("-").replace("_", "-").lower()
        if self.family == "llama.cpp" and key in _SET_FOR_LLAMA:
            self._llama_argument(f"--{key}", key, values[0] if values else "")
            return
        if key == "gpu-memory-utilization-gb" and values and _NUMBER.fullmatch(values[0]):
            if self.share_is_chosen:
                self.notes.warn(f"{name}: {values[0]} is replaced by --memory")
                return
            self.keys["memory"] = f"{int(float(values[0]) / MEMORY_GIB * 100) / 100:.2f}"
            self.notes.warn(f"memory: {values[0]} GiB of {name} are counted as the share {self.keys['memory']}")
        if path:
            self._set_nested_value(key, path, values[0] if values else "")
        elif not values:
            self.args[key] = True
        else:
            self.args[key] = [json_or_text(value) for value in values] if len(values) > 1 else json_or_text(values[0])

    def _take_option(
        self, name: str, option: EngineOption, path: str, values: list[str], options: Mapping[str, EngineOption]
    ) -> None:
        value = values[0] if values else ""
        if not (
            self._llama_argument(name, option.dest, value)
            if self._is_llama(option)
            else self._take_unit_key(name, value)
        ):
            return
        key = "n-gpu-layers" if option.dest == "gpu-layers" else name.removeprefix("--")
        taken: Any
        if path:
            self._set_nested_value(key, path, value)
            return
        if option.kind == "off" and (on := _opposite_flag(options, option)):
            key, taken = on.removeprefix("--"), False
        elif option.count == 0:
            taken = True
        elif option.count in ("+", "*") and len(values) > 1:
            taken = [_convert_value(option, one) for one in values]
        else:
            taken = _convert_value(option, value)
        if key in self.args and self.args[key] != taken:
            if option.repeats:
                self.notes.missing(f"command: {name} stands twice, and args has it once; correct a copy of the recipe")
            else:
                self.notes.warn(f"{name}: stands twice; the last one counts, as the engine reads it")
        self.args[key] = taken

    def _set_nested_value(self, key: str, path: str, value: str) -> None:
        place = self.args.setdefault(key, {})
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            self.notes.missing(
                f"command: --{key}.{path} does not go with the other values of --{key}; write one JSON value"
            )
            return
        place[last] = json_or_text(value)

    def _is_llama(self, option: EngineOption) -> bool:
        """Return whether an option means what it means to llama-server alone."""
        return self.family == "llama.cpp" and option.dest not in ("host", "port", "api-key", "hf-token", "model")

    def _llama_argument(self, name: str, dest: str, value: str) -> bool:
        """Return what `_take_unit_key` does, for an option of llama-server: names with one `dest` are one option."""
        match dest:
            case "hf-repo":
                self.served = value
            case "hf-file":
                self.keys["gguf"] = value
            case "ctx-size":
                self.keys["context"] = value
            case "parallel":
                # -1 leaves it to the server.
                self.keys["sequences"] = max(0, self._parse_number(name, value))
            case "alias":
                # Several are one model to clients; a model of rack.yaml has one name.
                self.keys["alias"] = value.partition(",")[0]
            case "embedding":
                self.computed = "embed"
            case "rerank":
                self.computed = "score"
            case "spec-draft-hf":
                self.notes.missing(
                    f"command: {name} {value}: names a draft without its file; leave it out of a copy of the recipe, "
                    "and write the draft at models and also, and its file at args.spec-draft-model"
                )
            case _ if {dest, name.removeprefix("--")} & _SET_FOR_LLAMA:
                if name not in ("--no-mmap", "--metrics", "--no-ui", "--no-webui"):
                    what = FAMILIES["llama.cpp"].owned.get(dest, "is set for each unit")
                    self.notes.warn(f"{name}: left out: {what}")
            case _:
                return True
        return False

    def _take_unit_key(self, name: str, value: str) -> bool:
        """Take an option that another key of the unit stands for; return whether it belongs into `args` instead."""
        match name.removeprefix("--"):
            case "tensor-parallel-size" | "tp-size":
                self.parallel["tensor"] = self._parse_number(name, value)
            case "pipeline-parallel-size" | "pp-size":
                self.parallel["pipeline"] = self._parse_number(name, value)
            case "enable-expert-parallel":
                self.parallel["expert"] = True
            case "expert-parallel-size" | "ep-size":
                self.parallel |= {"expert": True} if self._parse_number(name, value) > 1 else {}
            case "data-parallel-size" | "dp-size":
                return self._parse_number(name, value) > 1
            case "max-model-len" | "context-length":
                self.keys["context"] = value
            case "max-num-seqs" | "max-running-requests":
                self.keys["sequences"] = self._parse_number(name, value)
            case "gpu-memory-utilization" | "mem-fraction-static":
                self.keys["memory"] = value
            case "kv-cache-memory-bytes":
                self.keys["kv"] = value
            case "host":
                self.api["listen"] = "local" if value in ("127.0.0.1", "localhost", "::1") else "management"
            case "port":
                self.api["port"] = self._parse_number(name, value)
            case "api-key":
                variable = f"{self.name.upper()}_KEY"
                self.api["key"] = {"env": variable}
                self.notes.warn(f"{name}: a secret does not belong in a file; the unit takes it from {variable}")
            case "hf-token":
                self.notes.warn(f"{name}: a secret does not belong in a file; write a reference at models.NAME.token")
            case "distributed-executor-backend":
                self.ray = value == "ray"
            case "model" | "model-path":
                self.served = value
            case "revision":
                self.revision = value
            case "shutdown-timeout":
                self.keys["drain"] = f"{max(1, self._parse_number(name, value))}s"
            case "runner" | "task" | "is-embedding" as asked:
                self.computed = value or asked
                if self.computed not in _COMPUTED:
                    self.notes.missing(f"command: {name} {value}: a unit is a chat, an embedding or a score")
            case "config":
                self.notes.missing(
                    "command: --config names a file with more options; write them into a copy of the recipe"
                )
            case key:
                if key in _WATCHED:
                    self.notes.warn(f"{name}: left out: sparkrack reads the metrics of each unit")
                return key not in _LAUNCHED and key not in _WATCHED
        return False

    def _parse_number(self, name: str, value: str) -> int:
        try:
            return int(value)
        except ValueError:
            self.notes.missing(
                f"command: {name} {value or '(nothing)'}: is not a whole number; correct a copy of the recipe"
            )
            return 1

    def unknown_to(self, kind: Engine, version: str) -> Iterator[tuple[str, str]]:
        """Yield each option of `args` that the release does not have, or not with this value, and what it has instead.

        A value of the wrong kind is not one of a fork, and does not come over.
        """
        known = table(kind).of(table(kind).judging(version) or "")
        argv = ["model"] if kind == "vllm" else []
        for key, value in self.args.items():
            if isinstance(value, bool):
                argv += [f"--{key}"] if value else []
            elif not FAMILIES[kind].syntax.equals and not isinstance(value, list):
                argv += [f"--{key}", str(value)]
            elif isinstance(value, list) and not (known.get(f"--{key}") and known[f"--{key}"].takes_json):
                argv += [f"--{key}", *map(str, value)]
            else:
                argv.append(f"--{key}={json.dumps(value) if isinstance(value, dict | list) else value}")
        for problem in judge(kind, version, argv).problems:
            key = problem.option.lstrip("-")
            option = known.get(problem.option)
            if option and not option.choices:
                self.notes.missing(f"args.{key}: {problem.message}; correct a copy of the recipe")
            elif key in self.args:
                self.notes.warn(f"args.{key}: accepted, since the recipe has it; {problem.message}")
                yield key, problem.message.partition("; ")[0].removeprefix(f"{problem.option} ")


def _unknown_values(
    given: Iterator[tuple[str, str, list[str]]], options: Mapping[str, EngineOption]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield options and their values; words after the first value of an unknown option are its further values."""
    last: tuple[str, str, list[str]] | None = None
    for name, path, values in given:
        if not name and last and last[0] not in options:
            last[2].extend(values)
            continue
        if last:
            yield last
        last = (name, path, values)
    if last:
        yield last


def _name_as_parsed(options: Mapping[str, EngineOption], word: str) -> tuple[str, str]:
    """Return the name in a word as it is written, and as a parser takes it: abbreviations are allowed there."""
    written = word.partition("=")[0].partition(".")[0]
    name = "--" + written[2:].replace("_", "-") if written.startswith("--") else written
    if not written.startswith("--") or name in options:
        return written, written
    near = [other for other in options if other.startswith(name)]
    return written, near[0] if len({options[other].dest for other in near}) == 1 else written


def _name_as_llama_reads(_: Mapping[str, EngineOption], word: str) -> tuple[str, str]:
    """Return the name in a word as it is written, and as llama-server reads it: it takes no abbreviation."""
    return word, "--" + word[2:].replace("_", "-") if word.startswith("--") else word


def _long_name(options: Mapping[str, EngineOption], name: str, option: EngineOption) -> str:
    """Return the long name of an option by which args of rack.yaml have it."""
    usual = "--" + option.dest.replace("_", "-")
    if (same := options.get(usual)) and (same.dest, same.kind) == (option.dest, option.kind):
        return usual
    names = [other for other, one in options.items() if (one.dest, one.kind) == (option.dest, option.kind)]
    return next((other for other in (name, *names) if other in options and other.startswith("--")), name)


def _opposite_flag(options: Mapping[str, EngineOption], option: EngineOption) -> str:
    """Return the flag that an option of kind `off` turns off; empty if there is none."""
    return next((name for name, one in options.items() if (one.dest, one.kind) == (option.dest, "on")), "")


def _convert_value(option: EngineOption, value: str) -> Any:
    if option.takes_json:
        found = json_or_text(value)
        return found if isinstance(found, dict | list) else value
    read = {"int": int, "size": int, "float": float}.get(option.kind.partition("|")[0])
    try:
        return read(value) if read else value
    except ValueError:
        return value  # a size with its unit, or judged with the rest of the unit


def proof_kind(computed: str, args: Mapping[str, Any], models: str) -> Literal["chat", "embedding", "score"]:
    """Return what proves a unit: by its options, else by the names of its models, since an engine asks the model.

    Args:
        computed: the value of `--runner` or `--task`, or `is-embedding`.
        args: its other options.
        models: the names of the models.
    """
    if computed in ("score", "classify") or args.get("convert") == "classify" or _RANKS_TEXTS.search(models):
        return "score"
    if computed in ("pooling", "embed", "embedding", "is-embedding") or args.get("convert") == "embed":
        return "embedding"
    return "embedding" if computed not in ("generate",) and _EMBEDS.search(models) else "chat"

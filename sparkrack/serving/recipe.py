"""Units of rack.yaml from recipes of sparkrun and of eugr/spark-vllm-docker.

Both are YAML files with a model, an image, defaults, variables and a command line with `{placeholders}`.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from core.model.errors import ConfigError, ConfigProblem, counted
from core.model.loader import load
from core.model.yaml_reader import explain
from serving.engines.command_line import judge, split_options
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.engines.option_table import TITLES, Engine, EngineOption, table

_RUNTIMES: Mapping[str, Engine] = {
    **dict.fromkeys(("vllm", "vllm-distributed", "vllm-ray", "eugr-vllm"), "vllm"),
    "sglang": "sglang",
}
_RAY = ("vllm-ray", "eugr-vllm")
_PROGRAMS: Mapping[tuple[str, ...], Engine] = {
    ("vllm", "serve"): "vllm",
    **{(python, "-m", "vllm.entrypoints.openai.api_server"): "vllm" for python in ("python", "python3")},
    ("sglang", "serve"): "sglang",
    **{(python, "-m", "sglang.launch_server"): "sglang" for python in ("python", "python3")},
}
_READ = frozenset(
    {
        *("name", "description", "maintainer", "metadata", "recipe_version", "model", "model_revision", "runtime"),
        *("runtime_version", "container", "defaults", "env", "command", "min_nodes", "max_nodes", "mode"),
        *("solo_only", "cluster_only", "executor_config"),
    }
)
"""Keys of a recipe that are converted, or only describe it."""
_LOST = {
    "mods": "no patch is applied at a start; use an image that has it",
    "build_args": "images are pulled and not built; push one to a registry and name it",
    **dict.fromkeys(
        ("pre_exec", "post_exec", "post_commands", "stop_after_post"), "a unit runs no commands beside its engine"
    ),
}
_DEFAULTS: Mapping[Engine, Mapping[str, str]] = {
    "vllm": {
        "tensor_parallel": "tensor-parallel-size",
        "pipeline_parallel": "pipeline-parallel-size",
        "data_parallel": "data-parallel-size",
    },
    "sglang": {
        "tensor_parallel": "tp-size",
        "pipeline_parallel": "pp-size",
        "data_parallel": "dp-size",
        "gpu_memory_utilization": "mem-fraction-static",
        "max_model_len": "context-length",
        "max_num_seqs": "max-running-requests",
        "chunked_prefill": "chunked-prefill-size",
    },
}
"""Options of the defaults of a recipe without a command, where a hyphen for each underscore is not enough."""
_LAUNCHED = frozenset(
    ["nnodes", "node-rank", "headless", "master-addr", "master-port", "dist-init-addr", "nccl-init-addr"],
)
"""Options that sparkrack sets from the nodes of the unit."""
_VERSION_IN_TAG = re.compile(r"(?<![\d.])v?(0\.\d+\.\d+(?:rc\d+|\.post\d+)?)(?![\d.])")
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELL = re.compile(r"&&|\|\||[;|<>`]|\$[({A-Za-z_]")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_TOKENS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM]?)")
_SCALE = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}
_CHECKS = 3
"""Checks of a unit: what the first one finds is left out, the last one must find nothing."""


class RecipeError(Exception):
    """A recipe that cannot be turned into a unit; the message says why, and what to do."""


@dataclass(frozen=True)
class RecipeChoices:
    """What a recipe does not say. None, or empty: taken from the recipe, where it is there.

    `image`: with a tag that stays, or a digest. `version`: of the engine in it. `context`: tokens of the longest
    sequence. `nodes`: in rank order.
    """

    name: str
    image: str | None = None
    version: str | None = None
    context: int | None = None
    nodes: Sequence[str] = ()


@dataclass(frozen=True)
class ImportedUnit:
    """Entries for rack.yaml that are valid there; `warnings`: what the recipe has and they do not, a line each."""

    images: tuple[str, ...]
    models: Mapping[str, Mapping[str, str]]
    units: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...]

    def yaml(self) -> str:
        """Return the entries as they stand in rack.yaml."""
        return _dump({"images": list(self.images), "models": self.models, "serving": {"units": self.units}})


def import_recipe(text: str, choices: RecipeChoices) -> ImportedUnit:
    """Return the unit of a recipe. Raises RecipeError."""
    return _Import(_recipe(text), choices).run()


def unit_name(stem: str) -> str:
    """Return a name for a unit from that of a file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:31].strip("_") or "unit"


def _recipe(text: str) -> dict[str, Any]:
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        line, what, right = explain(error, text)
        raise RecipeError(f"line {line}: {what}; {right}") from None
    except (RecursionError, ValueError):
        raise RecipeError("is not YAML that can be read; give a recipe") from None
    if not isinstance(found, dict):
        raise RecipeError("is not a mapping; give a recipe of sparkrun or of spark-vllm-docker")
    return {str(key): value for key, value in found.items()}


class _Import:
    """One recipe on its way to a unit."""

    def __init__(self, recipe: dict[str, Any], choices: RecipeChoices) -> None:
        self.recipe, self.choices = recipe, choices
        self.warnings: list[str] = []
        self.defaults = self._mapping("defaults")
        self.env = dict(self._environment(self._mapping("env")))
        self.args: dict[str, Any] = {}
        self.parallel: dict[str, Any] = {"tensor": 1, "pipeline": 1}
        self.api: dict[str, Any] = {}
        self.unit: dict[str, Any] = {}
        self.model = str(recipe["model"]) if recipe.get("model") else ""
        self.revision = str(recipe.get("model_revision") or "")
        self.ray = recipe.get("runtime") in _RAY

    def warn(self, line: str) -> None:
        if line not in self.warnings:
            self.warnings.append(line)

    def _mapping(self, key: str) -> dict[str, Any]:
        value = self.recipe.get(key) or {}
        if not isinstance(value, dict):
            raise RecipeError(f"{key} is not a mapping; give a recipe of sparkrun or of spark-vllm-docker")
        return {str(name): one for name, one in value.items()}

    def run(self) -> ImportedUnit:
        self._keys()
        image = self._image()
        kind, argv = self._command()
        version = self._version(kind, image)
        self._options(kind, version, argv)
        model = self._model()
        self._executor()
        names = self._nodes()
        unit = {
            "engine": "vllm-ray" if kind == "vllm" and self.ray and len(names) > 1 else kind,
            "version": version,
            "image": image,
            "model": model,
            "nodes": names,
            "parallel": self.parallel,
            "context": self._context(),
            "sequences": self._sequences(),
            **self._memory(kind),
            **({"args": self.args} if self.args else {}),
            **({"env": self.env} if self.env else {}),
            "api": {"port": self.api.pop("port", 30000 if kind == "sglang" else 8000), **self.api},
            **self.unit,
        }
        source = {"source": self.model, **({"revision": self.revision} if self.revision else {})}
        found = ImportedUnit((image,), {model: source}, {self.choices.name: unit}, ())
        self._check(found, unit)
        return ImportedUnit(found.images, found.models, found.units, tuple(self.warnings))

    def _keys(self) -> None:
        for key, value in self.recipe.items():
            if key in _READ or value in (None, False, [], {}):
                continue
            shown = ": " + ", ".join(map(str, value)) if key in ("mods", "build_args") and _texts(value) else ""
            self.warn(f"{key}{shown}: {_LOST.get(key, 'has no counterpart in rack.yaml')}")

    def _image(self) -> str:
        image = self.choices.image or str(self.recipe.get("container") or "")
        if not image:
            raise RecipeError("names no container; give --image")
        if "/" not in image:
            raise RecipeError(f"container: {image} is in no registry; push the image to one and give --image")
        return image

    def _environment(self, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if "$" in text:
                self.warn(f"env.{name}: variables inside a value are not replaced; left out")
            else:
                yield name, text

    def _command(self) -> tuple[Engine, list[str]]:
        runtime = str(self.recipe.get("runtime") or "")
        if runtime and runtime not in _RUNTIMES:
            raise RecipeError(f"runtime {runtime}: rack.yaml has no such engine; it has vllm, vllm-ray and sglang")
        if not self.recipe.get("command"):
            if not runtime:
                raise RecipeError("has neither a command nor a runtime; add one to the recipe")
            return _RUNTIMES[runtime], list(self._default_options(_RUNTIMES[runtime]))
        words = self._words(self._filled(str(self.recipe["command"])))
        for program, kind in _PROGRAMS.items():
            if tuple(words[: len(program)]) == program:
                return kind, words[len(program) :]
        raise RecipeError(
            f"command: {' '.join(words[:2]) or 'is empty'}: is not an engine of rack.yaml; it has vllm, vllm-ray and "
            "sglang"
        )

    def _default_options(self, kind: Engine) -> Iterator[str]:
        for key, value in self.defaults.items():
            name = "--" + _DEFAULTS[kind].get(key, key.replace("_", "-"))
            if value is True:
                yield name
            elif value not in (None, False):
                yield f"{name}={json.dumps(value) if isinstance(value, dict | list) else value}"

    def _filled(self, command: str) -> str:
        """Return the command with its placeholders replaced; with `{{` in it, braces are doubled as in eugr's."""
        values = {**self.defaults, "model": self.model}
        doubled = "{{" in command

        def filled(found: re.Match[str]) -> str:
            key = found[1]
            if key is None:
                return found[0][0] if doubled else found[0]
            if values.get(key) in (None, ""):
                raise RecipeError(f"command: {{{key}}} has no value in defaults; add it to the recipe")
            value = values[key]
            return json.dumps(value) if isinstance(value, dict | list) else str(value)

        return _PLACEHOLDER.sub(filled, command)

    def _words(self, command: str) -> list[str]:
        joined = re.sub(r"\\[ \t]*\n", " ", command)
        lines = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        words: list[str] = []
        for line in lines:
            try:
                found = shlex.split(line, comments=True)
            except ValueError as error:
                raise RecipeError(f"command: is not a command line: {error}; correct the recipe") from None
            plain = re.sub(r"""'[^']*'|"[^"$`]*\"""", "", line)
            if shell := _SHELL.search(plain):
                raise RecipeError(f"command: is a shell script ({shell[0]}); leave only the line of the engine")
            if found[:1] == ["export"]:
                self._assigned(found[1:])
            elif found and words:
                raise RecipeError("command: has more than one line; leave only the line of the engine")
            else:
                words = found
        while words and (words[0] == "exec" or _ASSIGNMENT.fullmatch(words[0])):
            self._assigned([word for word in (words.pop(0),) if word != "exec"])
        return words

    def _assigned(self, words: Sequence[str]) -> None:
        for word in words:
            if found := _ASSIGNMENT.fullmatch(word):
                self.env[found[1]] = found[2]

    def _version(self, kind: Engine, image: str) -> str:
        known = list(table(kind).releases)
        range_of = f"{known[0]} to {known[-1]}"
        tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
        in_tag = _VERSION_IN_TAG.search(tag)
        version = self.choices.version or str(self.recipe.get("runtime_version") or "") or (in_tag[1] if in_tag else "")
        if not version:
            raise RecipeError(f"does not say which {TITLES[kind]} is in its image; give --version ({range_of})")
        try:
            release = table(kind).judging(version)
        except ValueError as error:
            raise RecipeError(f"{error}; give --version ({range_of})") from None
        if release is None:
            raise RecipeError(f"{TITLES[kind]} {version}: its options are unknown; give --version ({range_of})")
        return version

    def _options(self, kind: Engine, version: str, argv: Sequence[str]) -> None:
        options = table(kind).of(table(kind).judging(version) or "")
        words = list(argv)
        if kind == "vllm" and words and not words[0].startswith("-"):
            self._served(words.pop(0))
        words = [word.replace(part, full, 1) for word in words for part, full in (_spelled(options, word),)]
        for name, path, values in split_options(kind, options, ["model", *words] if kind == "vllm" else words):
            option = options.get(name)
            if not name:
                raise RecipeError(f"command: {' '.join(values)} belongs to no option; correct the recipe")
            if option is None:
                (problem, *_) = judge(kind, version, ["model", name] if kind == "vllm" else [name]).problems
                self.warn(f"{name}: left out: {problem.message}")
            elif not values and option.count not in (0, "?", "*"):
                self.warn(f"{name}: has no value; left out")
            else:
                self._option(_long(options, name, option), option, path.removeprefix("."), values, options)

    def _option(
        self, name: str, option: EngineOption, path: str, values: list[str], options: Mapping[str, EngineOption]
    ) -> None:
        value = values[0] if values else ""
        if not self._owned(name, value):
            return
        key = name.removeprefix("--")
        if path:
            self._nested(key, path, value)
            return
        if option.kind == "off" and (on := _opposite(options, option)):
            self.args[on.removeprefix("--")] = False
        elif option.count == 0:
            self.args[key] = True
        elif option.count in ("+", "*") and len(values) > 1:
            self.args[key] = [_typed(option, one) for one in values]
        elif key in self.args:
            self.warn(f"{name}: stands twice; the first one is taken")
        else:
            self.args[key] = _typed(option, value)

    def _nested(self, key: str, path: str, value: str) -> None:
        place = self.args.setdefault(key, {})
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            self.warn(f"--{key}.{path}: does not go with the other values of --{key}; left out")
            return
        place[last] = _json(value)

    def _owned(self, name: str, value: str) -> bool:
        """Take an option that another key of the unit stands for; return whether it belongs into `args` instead."""
        match name.removeprefix("--"):
            case "tensor-parallel-size" | "tp-size":
                self.parallel["tensor"] = _number(name, value)
            case "pipeline-parallel-size" | "pp-size":
                self.parallel["pipeline"] = _number(name, value)
            case "enable-expert-parallel":
                self.parallel["expert"] = True
            case "expert-parallel-size" | "ep-size":
                self.parallel |= {"expert": True} if _number(name, value) > 1 else {}
            case "data-parallel-size" | "dp-size":
                if _number(name, value) > 1:
                    raise RecipeError(f"{name} {value}: a unit has one copy of its model; make a unit of each")
            case "max-model-len" | "context-length":
                self.unit["context"] = value
            case "max-num-seqs" | "max-running-requests":
                self.unit["sequences"] = _number(name, value)
            case "gpu-memory-utilization" | "mem-fraction-static":
                self.unit["memory"] = value
            case "kv-cache-memory-bytes":
                self.unit["kv"] = value
            case "host":
                self.api["listen"] = "local" if value in ("127.0.0.1", "localhost", "::1") else "management"
            case "port":
                self.api["port"] = _number(name, value)
            case "api-key":
                variable = f"{self.choices.name.upper()}_KEY"
                self.api["key"] = {"env": variable}
                self.warn(f"{name}: a secret does not belong in a file; the unit takes it from {variable}")
            case "distributed-executor-backend":
                self.ray = value == "ray"
            case "model" | "model-path":
                self._served(value)
            case "revision":
                self.revision = value
            case "shutdown-timeout":
                self.unit["drain"] = f"{max(1, _number(name, value))}s"
            case "config":
                raise RecipeError("--config names a file with more options; write them into the command")
            case key:
                return key not in _LAUNCHED
        return False

    def _served(self, model: str) -> None:
        if not self.model:
            self.model = model
        elif model != self.model:
            self.warn(f"command: serves {model}; the unit serves {self.model}, the model of the recipe")

    def _model(self) -> str:
        if not _HUB_NAME.fullmatch(self.model):
            raise RecipeError(
                f"model {self.model or 'is missing'}: is not the name of a model on the hub; write OWNER/NAME"
            )
        return self.model.rpartition("/")[2].lower()

    def _executor(self) -> None:
        for key, value in self._mapping("executor_config").items():
            size = re.fullmatch(r"([0-9]+)(?:\.[0-9]+)?([gm])b?", str(value).lower())
            if key == "shm_size" and size:
                self.unit["shm"] = size[1] + size[2].upper()
            else:
                self.warn(f"executor_config.{key}: the launcher sets the options of the container")

    def _nodes(self) -> list[str]:
        count = self.parallel["tensor"] * self.parallel["pipeline"]
        ranks = counted(count, "rank")
        if not 1 <= count <= 8:
            raise RecipeError(f"has {ranks}; a rack has 1 to 8 nodes with a rank each")
        if self.choices.nodes and len(self.choices.nodes) != count:
            raise RecipeError(f"has {ranks}, and --nodes names {len(self.choices.nodes)}; name a node for each rank")
        least = self.recipe.get("min_nodes") or (2 if self.recipe.get("cluster_only") else 1)
        if isinstance(least, int) and least > count:
            self.warn(f"min_nodes: the recipe asks for {least} nodes, its command has {ranks}")
        if not self.choices.nodes:
            self.warn("nodes: a recipe names none; write those of your rack")
        return list(self.choices.nodes) or [f"spark{number}" for number in range(1, count + 1)]

    def _context(self) -> int:
        written = self.unit.pop("context", "")
        if self.choices.context:
            return self.choices.context
        found = _TOKENS.fullmatch(str(written))
        if not found:
            raise RecipeError("does not say how long a sequence can be; give --context")
        return int(float(found[1]) * _SCALE[found[2]])

    def _sequences(self) -> int:
        if "sequences" not in self.unit:
            self.warn("sequences: the recipe leaves it to the engine; 8 is written")
        return int(self.unit.pop("sequences", 8))

    def _memory(self, kind: Engine) -> dict[str, Any]:
        share, size = self.unit.pop("memory", None), self.unit.pop("kv", None)
        if size is not None and kind == "vllm":
            found = _TOKENS.fullmatch(str(size)) or re.fullmatch(r"([0-9.]+)([gG])", str(size))
            scale = {**_SCALE, "g": 10**9, "G": 2**30}
            gib = int(float(found[1]) * scale[found[2]] / 2**30) if found else 0
            if gib < 1:
                raise RecipeError("--kv-cache-memory-bytes: is not a size of at least 1 GiB; write another")
            return {"kv": f"{gib}G"}
        if share is None:
            self.warn("memory: the recipe leaves it to the engine; 0.85 is written")
            return {"memory": 0.85}
        try:
            number = float(share)
        except ValueError:
            raise RecipeError(f"{share} is not a share of the memory; write a number like 0.85") from None
        if number > HIGHEST_SHARE:
            left = (1 - number) * MEMORY_GIB
            self.warn(f"memory: {share} leaves {left:.1f} GiB for the host; {HIGHEST_SHARE:.2f} is written")
        return {"memory": min(number, HIGHEST_SHARE)}

    def _check(self, found: ImportedUnit, unit: dict[str, Any]) -> None:
        """Leave out what rack.yaml refuses in `args`, `env` and `api.port`. Raises RecipeError for the rest."""
        start = f"serving.units.{self.choices.name}."
        for attempt in range(_CHECKS):
            problems = _problems(found)
            for problem in problems:
                where = problem.path.removeprefix(start)
                section, _, key = where.partition(".")
                line = f"{problem.what}; {problem.right}"
                if attempt + 1 < _CHECKS and section in ("args", "env") and key in unit.get(section, {}):
                    del unit[section][key]
                    self.warn(f"{where}: left out: {line}")
                elif attempt + 1 < _CHECKS and where == "api.port":
                    unit["api"]["port"] = 8000
                    self.warn(f"{where}: 8000 is written: {line}")
                elif section == "images":
                    raise RecipeError(f"container: {line}; give --image")
                elif section not in ("args", "env") or attempt + 1 == _CHECKS:
                    raise RecipeError(f"{where}: {line}")
            if not problems:
                break
        for section in ("args", "env"):
            if section in unit and not unit[section]:
                del unit[section]


def _spelled(options: Mapping[str, EngineOption], word: str) -> tuple[str, str]:
    """Return the name in a word as it is written, and as a parser takes it: abbreviations are allowed there."""
    written = word.partition("=")[0].partition(".")[0]
    name = "--" + written[2:].replace("_", "-") if written.startswith("--") else written
    if not written.startswith("--") or name in options:
        return written, written
    near = [other for other in options if other.startswith(name)]
    return written, near[0] if len({options[other].dest for other in near}) == 1 else written


def _long(options: Mapping[str, EngineOption], name: str, option: EngineOption) -> str:
    """Return the long name of an option by which args of rack.yaml have it."""
    usual = "--" + option.dest.replace("_", "-")
    if (same := options.get(usual)) and (same.dest, same.kind) == (option.dest, option.kind):
        return usual
    names = [other for other, one in options.items() if (one.dest, one.kind) == (option.dest, option.kind)]
    return next((other for other in (name, *names) if other.startswith("--")), name)


def _opposite(options: Mapping[str, EngineOption], option: EngineOption) -> str:
    """Return the flag that an option of kind `off` turns off; empty if there is none."""
    return next((name for name, one in options.items() if (one.dest, one.kind) == (option.dest, "on")), "")


def _typed(option: EngineOption, value: str) -> Any:
    if option.takes_json:
        found = _json(value)
        return found if isinstance(found, dict | list) else value
    read = {"int": int, "size": int, "float": float}.get(option.kind.partition("|")[0])
    try:
        return read(value) if read else value
    except ValueError:
        return value  # a size with its unit, or judged with the rest of the unit


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise RecipeError(f"{name} {value}: is not a whole number; correct the recipe") from None


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _dump(value: object) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
    yaml.width = 4096
    text = StringIO()
    yaml.dump(value, text)
    return text.getvalue()


def _problems(found: ImportedUnit) -> tuple[ConfigProblem, ...]:
    """Return what rack.yaml refuses of these entries, in a rack that has nothing else."""
    (unit,) = found.units.values()
    legs = [f"s/qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)]
    rack = {
        "rack": "recipe",
        "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {
            name: {"address": f"10.0.0.{number + 11}", "vendor": "nvidia", "ports": {1: legs[number]}}
            for number, name in enumerate(unit["nodes"])
        },
        "switches": {
            "s": {
                "address": "10.0.0.2",
                "tls": {"sha256": "0" * 64},
                "user": "sparkrack",
                "password": {"env": "PASSWORD"},
                "cages": {"qsfp56-dd-1": {"split": "4x100G"}, "qsfp56-dd-2": {"split": "4x100G"}},
            }
        },
        "fabric": {"subnets": ["192.168.100.0/24", "192.168.101.0/24"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rack.yaml"
        path.write_text(_dump(rack) + found.yaml(), encoding="utf-8")
        try:
            load(path)
        except ConfigError as error:
            return tuple(error.faults)
    return ()

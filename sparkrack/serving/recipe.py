"""Units of rack.yaml from recipes of sparkrun and of eugr/spark-vllm-docker: whole, or refused with what is missing.

Both are YAML files with a model, an image, defaults, variables and a command line with `{placeholders}`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML

from core.model.errors import ConfigError, ConfigProblem, counted
from core.model.loader import load
from core.model.written_secrets import written_secret
from serving.container_paths import INSIDE_MODELS
from serving.engines.option_table import TITLES, Engine, table
from sparkrack.serving import recipe_gguf
from sparkrack.serving.recipe_before import INSIDE_RECIPE, SCRIPT, before_engine
from sparkrack.serving.recipe_models import RecipeModels, is_hub_cache, is_hub_name, mounted_models, volume_paths
from sparkrack.serving.recipe_options import RecipeOptions, proof_kind
from sparkrack.serving.recipe_registry import RecipeSource
from sparkrack.serving.recipe_text import (
    CommandWords,
    RecipeError,
    RecipeNotes,
    command_words,
    entries,
    filled,
    read_recipe,
)

_RUNTIMES: Mapping[str, Engine] = {
    **dict.fromkeys(("vllm", "vllm-distributed", "vllm-ray", "eugr-vllm"), "vllm"),
    "sglang": "sglang",
    "llama-cpp": "llama.cpp",
}
_RAY = ("vllm-ray", "eugr-vllm")
_PROGRAMS: Mapping[tuple[str, ...], Engine] = {
    ("vllm", "serve"): "vllm",
    **{(python, "-m", "vllm.entrypoints.openai.api_server"): "vllm" for python in ("python", "python3")},
    ("sglang", "serve"): "sglang",
    **{(python, "-m", "sglang.launch_server"): "sglang" for python in ("python", "python3")},
    ("llama-server",): "llama.cpp",
}
_READ = frozenset(
    {
        *(
            "name",
            "description",
            "maintainer",
            "metadata",
            "recipe_version",
            "sparkrun_version",
            "model",
            "container",
            "pull_image",
        ),
        *("model_revision", "runtime", "runtime_version", "defaults", "env", "command", "min_nodes", "max_nodes"),
        *("mode", "solo_only", "cluster_only", "executor_config", "distribution_config", "benchmark", "builder"),
        *("mods", "pre_exec", "volumes", "draft_model", "build_args", "runtime_config", "builder_config"),
        "mmproj",
    }
)
"""Keys of a recipe that are converted, or do not change what is served."""
_MISSING = {
    **dict.fromkeys(
        ("post_exec", "post_commands", "stop_after_post"),
        "nothing runs after a start, which a completion proves; remove it from a copy of the recipe",
    ),
    "patches": "are files of the author's own tool; put them into a mod with a run.sh, or into the image",
}
"""Keys that change what is served, or what happens, and have no counterpart in rack.yaml."""
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
_VERSION_IN_TAG = re.compile(r"(?<![\d.])v?(0\.\d+\.\d+(?:rc\d+|\.post\d+)?)(?![\d.])")
_BUILD_IN_TAG = re.compile(r"(?<![A-Za-z0-9])(b\d{4,6})(?![A-Za-z0-9])")
_TOKENS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM]?)")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)")
_SCALE = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
_PORTS: Mapping[Engine, int] = {"sglang": 30000, "llama.cpp": 8080}
"""The default port of an engine; that of the others is 8000."""
_STAND_IN = "registry.invalid/engine:1.0"
_STAND_IN_FILE = "missing.gguf"
"""Image and file with which a recipe without them is checked, so that one run reports all that is missing."""


@dataclass(frozen=True)
class RecipeChoices:
    """What a recipe does not say. None, or empty: taken from the recipe, where it is there.

    `image`: with a tag that stays, or a digest. `version`: of the engine in it. `context`: tokens of the longest
    sequence. `sequences`: at once. `memory`: the share of a node that the engine takes. `kv`: the size of the cache of
    llama.cpp. `gguf`: the file of the model for llama.cpp, or its first part, and its projector. `nodes`: in rank
    order. `folder`: for the files that the unit needs, in that of rack.yaml. `rack_nodes`: those of the rack, of which
    the first are taken where `nodes` is empty.
    """

    name: str
    image: str | None = None
    version: str | None = None
    context: int | None = None
    sequences: int | None = None
    memory: float | None = None
    nodes: Sequence[str] = ()
    folder: str = ""
    kv: str | None = None
    gguf: Sequence[str] = ()
    rack_nodes: Sequence[str] = ()


@dataclass(frozen=True)
class ImportedUnit:
    """Entries for rack.yaml that are valid there.

    `warnings`: what stands elsewhere than in the recipe, or is set by sparkrack, a line each. `files`: what the unit
    needs beside rack.yaml, by path from its folder.
    """

    images: tuple[str, ...]
    models: Mapping[str, Mapping[str, Any]]
    units: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def yaml(self) -> str:
        """Return the entries as they stand in rack.yaml."""
        return _dump_yaml({"images": list(self.images), "models": self.models, "serving": {"units": self.units}})


AskReason = Callable[[str, str], str]
"""Returns why a unit has an option or a place that no table and no mount has, from its name and from what the recipe
gives as the reason."""


def import_recipe(
    text: str, choices: RecipeChoices, source: RecipeSource | None = None, ask_reason: AskReason | None = None
) -> ImportedUnit:
    """Return the unit of a recipe, which serves what the recipe serves. Raises RecipeError with all that is missing.

    Args:
        text: the recipe.
        choices: what the recipe does not say, or what is to be otherwise.
        source: where it stands: its mods and files are looked for there. None: it has none.
        ask_reason: asks for the reason of each entry of `accept`, when all else comes over. None: it names the recipe.
    """
    recipe, repeated = read_recipe(text)
    return _Import(recipe, choices, source or RecipeSource(), repeated).run(ask_reason)


def unit_name(stem: str) -> str:
    """Return a name for a unit from that of a file, without its ending."""
    return re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:31].strip("_") or "unit"


class _Import:
    """One recipe on its way to a unit."""

    def __init__(
        self, recipe: dict[str, Any], choices: RecipeChoices, source: RecipeSource, repeated: tuple[str, ...]
    ) -> None:
        self.recipe, self.choices, self.source = recipe, choices, source
        self.notes = RecipeNotes([*repeated])
        self.defaults = self._read_mapping("defaults")
        self.main = str(recipe["model"]) if recipe.get("model") else ""
        if recipe.get("runtime") == "llama-cpp" and "max_model_len" in self.defaults and recipe.get("command"):
            self.defaults.setdefault("ctx_size", self.defaults["max_model_len"])
        self.env: dict[str, str] = {}
        self.options = RecipeOptions(
            self.notes, choices.name, choices.memory is not None, ray=recipe.get("runtime") in _RAY
        )

    def _read_mapping(self, key: str) -> dict[str, Any]:
        value = self.recipe.get(key) or {}
        if not isinstance(value, dict):
            raise RecipeError(f"{key} is not a mapping; give a recipe of sparkrun or of spark-vllm-docker")
        return {str(name): one for name, one in value.items()}

    def run(self, ask_reason: AskReason | None = None) -> ImportedUnit:
        """Return the unit. Raises RecipeError with all that is missing."""
        self._check_keys()
        image = self._choose_image()
        kind, argv = self._read_command()
        version = self._choose_version(kind, image)
        self._read_environment(self._read_mapping("env"))
        self.options.take(kind, version, argv)
        models, model, gguf = self._unit_models(kind)
        before = before_engine(self._list_mods(), entries(self.recipe.get("pre_exec")), self._fill_text, self.source)
        for problem in before.problems:
            self.notes.missing(problem)
        models.put_in_container(self.options.args, self.env, before)
        for key, what in self.options.unknown_to(kind, version):
            models.accept.setdefault(key, f"{self.source.title} gives it to its image; by the table it {what}")
        if kind == "llama.cpp":
            self._choose_gguf_files(models, model, gguf)
        proof = self._choose_proof_kind(kind)
        names = self._choose_nodes()
        folder = self.choices.folder or f"recipes/{unit_name(self.choices.name)}"
        files = {f"{folder}/{path}": content for path, content in before.content().items()}
        unit = {
            "engine": "vllm-ray" if kind == "vllm" and self.options.ray and len(names) > 1 else kind,
            **({} if proof == "chat" else {"kind": proof}),
            "version": version,
            "image": image,
            **self._model_keys(kind, models, model, gguf),
            **({"files": {INSIDE_RECIPE: folder}} if files else {}),
            **({"before": ["bash", f"{INSIDE_RECIPE}/{SCRIPT}"]} if before.steps else {}),
            "nodes": names,
            **self._list_sizes(kind),
            "args": self.options.args,
            "env": self.env,
            "api": {"port": _PORTS.get(kind, 8000), **self.options.api},
            **{key: self.options.keys[key] for key in ("drain",) if key in self.options.keys},
            **self._shared_memory(),
            "accept": models.accept,
        }
        return self._require_complete_unit(
            ImportedUnit((image,), models.entries, {self.choices.name: unit}, (), files), ask_reason
        )

    def _unit_models(self, kind: Engine) -> tuple[RecipeModels, str, str]:
        """Return the models of the unit, the name of the one that is served, and its file for llama.cpp."""
        taken = self.options
        quant = self._read_gguf_quantization() if kind == "llama.cpp" else ""
        models = self._read_models()
        model = models.add_served(taken.served, str(self.recipe.get("model_revision") or "") or taken.revision)
        gguf = ""
        if kind == "llama.cpp":
            model, gguf = self._choose_gguf_file(models, model, quant)
        else:
            # Without the option an engine is called by its model as the command has it, a unit by its model's name.
            taken.args.setdefault("served-model-name", taken.served or self.main or model)
        self._further_models(models)
        return models, model, gguf

    def _choose_gguf_files(self, models: RecipeModels, model: str, gguf: str) -> None:
        """Leave of each model the files that llama-server reads."""
        for name, entry in models.entries.items():
            if wanted := recipe_gguf.fetched(name, gguf if name == model else "", self.options.args):
                entry["files"] = wanted

    def _choose_proof_kind(self, kind: Engine) -> str:
        """Return the kind of the unit: which request proves it."""
        taken = self.options
        # llama-server computes what its options say, whatever the model is called.
        called = f"{taken.served} {self.main}" if kind != "llama.cpp" else ""
        proof = proof_kind(taken.computed, taken.args, called)
        asked = taken.computed == "pooling" and taken.args.get("convert") not in ("embed", "classify")
        if proof != "chat" and (asked or proof_kind(taken.computed, taken.args, "") != proof):
            self.notes.warn(
                f"kind: {proof} is written, by the name of the model; write the other one where it is wrong"
            )
        return proof

    def _model_keys(self, kind: Engine, models: RecipeModels, model: str, gguf: str) -> dict[str, Any]:
        """Return the keys of the unit that name its models."""
        also = [name for name in models.entries if name != model]
        return {
            "model": model,
            **({"gguf": gguf or _STAND_IN_FILE} if kind == "llama.cpp" else {}),
            **({"also": also} if also else {}),
        }

    def _list_sizes(self, kind: Engine) -> dict[str, Any]:
        """Return the keys of the unit that say how large it is."""
        return {
            **({} if kind == "llama.cpp" else {"parallel": self.options.parallel}),
            "context": self._choose_context(),
            "sequences": self._choose_sequences(kind),
            **self._choose_memory(kind),
        }

    def _require_complete_unit(self, found: ImportedUnit, ask_reason: AskReason | None) -> ImportedUnit:
        """Return a unit with its warnings, without empty sections. Raises RecipeError with all that is missing."""
        unit: Any = found.units[self.choices.name]
        self._check_entries(found, unit)
        for section in ("args", "env", "accept"):
            if not unit[section]:
                del unit[section]
        if self.notes.problems:
            raise RecipeError(*self.notes.problems)
        if ask_reason:
            for key, reason in unit.get("accept", {}).items():
                section = next((one for one in ("args", "env") if key in unit.get(one, {})), "accept")
                unit["accept"][key] = ask_reason(f"{section}.{key}", reason)
        return replace(found, warnings=tuple(self.notes.warnings))

    def _check_keys(self) -> None:
        for key, value in self.recipe.items():
            if value in (None, False, [], {}) or key in _READ:
                continue
            if key in _MISSING:
                self.notes.missing(f"{key}: {_MISSING[key]}")
            else:
                self.notes.warn(f"{key}: left out: neither sparkrun nor eugr reads it")
        runtime = self._read_mapping("runtime_config")
        if built := [*entries(self.recipe.get("build_args")), *entries(runtime.get("build_args"))]:
            self.notes.warn(f"build_args: {' '.join(map(str, built))}: belongs to the image, which must have it")

    def _choose_image(self) -> str:
        image = self.choices.image or str(self.recipe.get("container") or "")
        if image and "/" in image:
            return image
        if image:
            self.notes.missing(f"container: {image} is in no registry; push the image to one and give --image")
        else:
            self.notes.missing("container: the recipe names none; give --image")
        return _STAND_IN

    def _fill_text(self, text: str) -> str:
        def missing(name: str) -> None:
            self.notes.missing(f"command: {{{name}}} has no value in defaults; add it to a copy of the recipe")

        return filled(text, {"model": self.main, **self.defaults}, missing)

    def _read_environment(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if written_secret(name, text, variable=True) is not None:
                where = (
                    "api.key" if name in ("VLLM_API_KEY", "SGLANG_API_KEY", "LLAMA_API_KEY") else "models.NAME.token"
                )
                self.notes.warn(f"env.{name}: left out: a secret is written as a reference, at {where}")
            elif "$" in text:
                self.notes.missing(
                    f"env.{name}: has a variable inside its value, which nothing replaces; write the whole value into "
                    "a copy of the recipe"
                )
            else:
                # Those of the command come first: they are set last where the recipe is run.
                self.env.setdefault(name, text)

    def _read_command(self) -> tuple[Engine, list[str]]:
        runtime = str(self.recipe.get("runtime") or "")
        if runtime and runtime not in _RUNTIMES:
            self._refuse_recipe(
                f"runtime {runtime}: is not an engine that is imported; vllm, vllm-ray, sglang and llama-cpp are"
            )
        if not self.recipe.get("command"):
            if not runtime:
                self._refuse_recipe("has neither a command nor a runtime; add one to a copy of the recipe")
            if _RUNTIMES[runtime] == "llama.cpp":
                known = table("llama.cpp").of(list(table("llama.cpp").releases)[-1])
                words = recipe_gguf.default_options(self.defaults, self.main, known, self.notes)
                return "llama.cpp", [self._fill_text(word) for word in words]
            return _RUNTIMES[runtime], list(self._default_options(_RUNTIMES[runtime]))
        command = self._fill_text(str(self.recipe["command"]))
        if any(line.startswith("command: {") for line in self.notes.problems):
            raise RecipeError(*self.notes.problems)  # without its values the rest of the command would be misread
        found = command_words(command)
        for problem in found.problems:
            self.notes.missing(problem)
        self._read_environment(found.environment)
        return self._recognize_program(found)

    def _recognize_program(self, found: CommandWords) -> tuple[Engine, list[str]]:
        words = [found.words[0].rpartition("/")[2], *found.words[1:]] if found.words else []
        for program, kind in _PROGRAMS.items():
            if tuple(words[: len(program)]) == program:
                return kind, words[len(program) :]
        if not found.problems:
            what = " ".join(words[:2]) or "is empty"
            self.notes.missing(
                f"command: {what}: is not an engine that is imported; vllm, vllm-ray, sglang and llama-cpp are"
            )
        raise RecipeError(*self.notes.problems)

    def _refuse_recipe(self, problem: str) -> NoReturn:
        raise RecipeError(*self.notes.problems, problem)

    def _default_options(self, kind: Engine) -> Iterator[str]:
        for key, value in self.defaults.items():
            name = "--" + _DEFAULTS[kind].get(key, key.replace("_", "-"))
            if value is True:
                yield name
            elif value not in (None, False):
                yield f"{name}={json.dumps(value) if isinstance(value, dict | list) else self._fill_text(str(value))}"

    def _choose_version(self, kind: Engine, image: str) -> str:
        """Return the version; where it is missing the newest one, by which the rest is judged."""
        known = list(table(kind).releases)
        tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
        in_tag = (_BUILD_IN_TAG if kind == "llama.cpp" else _VERSION_IN_TAG).search(tag)
        version = self.choices.version or str(self.recipe.get("runtime_version") or "") or (in_tag[1] if in_tag else "")
        what = f"the recipe does not say which {TITLES[kind]} is in its image"
        try:
            if version and table(kind).judging(version):
                return version
            what = f"{TITLES[kind]} {version}: its options are unknown" if version else what
        except ValueError as error:
            what = str(error)
        self.notes.missing(f"version: {what}; give --version ({known[0]} to {known[-1]})")
        return known[-1]

    def _read_models(self) -> RecipeModels:
        draft = str(self.recipe.get("draft_model") or "")
        volumes = [*entries(self.recipe.get("volumes")), *entries(self._read_mapping("executor_config").get("volumes"))]
        mounted = mounted_models(volumes, self.main, draft)
        for volume in volumes:
            _, inside = volume_paths(volume)
            if inside not in mounted and not is_hub_cache(inside):
                self.notes.missing(
                    f"volumes: {volume}: a unit has models, and files beside rack.yaml; put the files there, list them "
                    "at files of the unit, and remove this from a copy of the recipe"
                )
        return RecipeModels(self.notes, self.source, self.main, mounted)

    def _read_gguf_quantization(self) -> str:
        """Return what chooses the file of the model on the hub, and leave the name of the model alone."""
        taken = self.options
        named, quant = recipe_gguf.hub_name(taken.served or self.main)
        taken.served = named if taken.served else ""
        self.main = recipe_gguf.hub_name(self.main)[0]
        recipe_gguf.check_nodes(self.recipe, self.defaults, self.notes)
        taken.keys["context"] = recipe_gguf.context(
            str(taken.keys.get("context", "")),
            int(taken.keys.get("sequences", 0)),
            taken.args.get("kv-unified") is True,
            self.notes,
        )
        return quant

    def _choose_gguf_file(self, models: RecipeModels, model: str, quant: str) -> tuple[str, str]:
        """Return the name of the model of llama.cpp, by which clients ask for it, and its file."""
        taken = self.options
        if found := models.repository(taken.served):
            taken.keys.setdefault("gguf", found[2].lstrip("/"))
        asked = str(taken.keys.pop("alias", "") or self.defaults.get("served_model_name") or "")
        model = models.rename(model, asked) if asked else model
        if asked != model:
            called = asked or "the file of its model"
            self.notes.warn(
                f"alias: clients that asked for {called} find it as {model}; llama-server answers to any name"
            )
        inside, projector = f"{INSIDE_MODELS}/{model}", self.recipe.get("mmproj")
        return model, recipe_gguf.put_files(self.choices.gguf, quant, inside, taken, self.notes, recipe=projector)

    def _further_models(self, models: RecipeModels) -> None:
        declared = self._read_mapping("distribution_config").get("models")
        listed = entries(declared.get("entries")) if isinstance(declared, Mapping) else []
        for entry in [*entries(self.recipe.get("draft_model")), *listed]:
            entry = entry if isinstance(entry, Mapping) else {"name": entry}
            name = self._fill_text(str(entry.get("name") or ""))
            if is_hub_name(name):
                models.add(name, str(entry.get("revision") or ""))
            else:
                self.notes.missing(f"model {name or 'without a name'}: is not one on the hub; write OWNER/NAME")

    def _list_mods(self) -> list[Any]:
        return entries(self.recipe.get("mods")) or entries(self._read_mapping("runtime_config").get("mods"))

    def _shared_memory(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in self._read_mapping("executor_config").items():
            size = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([gm])b?", str(value).lower())
            if key == "shm_size" and size:
                found["shm"] = _binary_size(float(size[1]) * _SCALE[size[2].upper()], up=True)
            elif key != "volumes":
                self.notes.warn(f"executor_config.{key}: the launcher sets the options of the container")
        return found

    def _choose_nodes(self) -> list[str]:
        count = self.options.parallel["tensor"] * self.options.parallel["pipeline"]
        ranks = counted(count, "rank")
        if not 1 <= count <= 8:
            self.notes.missing(f"has {ranks}; a rack has 1 to 8 nodes with a rank each")
            self.options.parallel |= {"tensor": 1, "pipeline": 1}
            return ["spark1"]
        if self.choices.nodes and len(self.choices.nodes) != count:
            self.notes.missing(f"has {ranks}, and --nodes names {len(self.choices.nodes)}; name a node for each rank")
        least = self.recipe.get("min_nodes") or (2 if self.recipe.get("cluster_only") else 1)
        if isinstance(least, int) and least > count:
            self.notes.warn(f"min_nodes: the recipe asks for {least} nodes, its command has {ranks}")
        if not self.choices.nodes:
            return self._first_nodes(count)
        named = len(self.choices.nodes) == count
        return list(self.choices.nodes) if named else [f"spark{number}" for number in range(1, count + 1)]

    def _first_nodes(self, count: int) -> list[str]:
        """Return the first nodes of the rack, or placeholders where it is not known."""
        present = self.choices.rack_nodes
        if not present:
            self.notes.warn("nodes: a recipe names none; write those of your rack")
        elif len(present) < count:
            self.notes.missing(f"has {counted(count, 'rank')}, and the rack has {counted(len(present), 'node')}")
        else:
            return list(present[:count])
        return [f"spark{number}" for number in range(1, count + 1)]

    def _choose_context(self) -> int:
        written = self.options.keys.pop("context", "")
        if self.choices.context:
            return self.choices.context
        if found := _TOKENS.fullmatch(str(written)):
            return int(float(found[1]) * _SCALE[found[2]])
        self.notes.missing("context: the recipe does not say how long a sequence can be; give --context")
        return 4096

    def _choose_sequences(self, kind: Engine) -> int:
        written = self.options.keys.pop("sequences", None)
        if self.choices.sequences or written:
            return int(self.choices.sequences or written)
        self.notes.missing(f"sequences: the recipe leaves it to {TITLES[kind]} how many run at once; give --sequences")
        return 1

    def _choose_memory(self, kind: Engine) -> dict[str, Any]:
        share, size = self.options.keys.pop("memory", None), self.options.keys.pop("kv", None)
        if kind == "llama.cpp":
            if self.choices.memory is not None:
                self.notes.missing("memory: llama.cpp takes no share of a node; leave --memory out, and give --kv")
            if self.choices.kv is None:
                self.notes.missing(
                    "kv: llama.cpp does not say how large its cache is before it starts; give --kv, the `KV buffer "
                    "size` in its log, or what its context takes"
                )
            return {"kv": self.choices.kv or "1G"}
        if self.choices.kv is not None:
            self.notes.missing("kv: --kv is for llama.cpp; leave it out, and write kv into rack.yaml")
        if size is not None and kind == "vllm":
            return self._choose_cache_size(str(size))
        if self.choices.memory is not None:
            return {"memory": self.choices.memory}
        if share is None:
            self.notes.missing(
                f"memory: the recipe leaves it to {TITLES[kind]} how much of a node it takes; give --memory, like 0.85"
            )
            return {"memory": 0.85}
        try:
            number = float(share)
        except ValueError:
            self.notes.missing(f"memory: {share} is not a share of the memory; give --memory, like 0.85")
            return {"memory": 0.85}
        return {"memory": number}

    def _choose_cache_size(self, size: str) -> dict[str, Any]:
        found = _BYTES.fullmatch(size)
        wanted = float(found[1]) * _SCALE[found[2]] if found else 0
        if wanted < 2**30:
            self.notes.missing(f"kv: --kv-cache-memory-bytes {size} is not a size of at least 1 GiB; write another")
            return {"kv": "1G"}
        written = _binary_size(wanted, up=False)
        if less := int(wanted) % 2**20:
            self.notes.warn(f"kv: {size} is written as {written}, {less} bytes less")
        return {"kv": written}

    def _check_entries(self, found: ImportedUnit, unit: dict[str, Any]) -> None:
        """Note what rack.yaml refuses of these entries, in a rack that has nothing else."""
        start = f"serving.units.{self.choices.name}."
        for problem in _list_problems(found):
            where = problem.path.removeprefix(start)
            section, _, key = where.partition(".")
            line = f"{problem.what}; {problem.right}"
            if any(known.startswith(f"{where}: ") for known in self.notes.problems):
                continue
            if section == "env" and key in unit["env"] and not key.startswith("LLAMA_ARG_"):
                del unit["env"][key]
                self.notes.warn(f"{where}: left out: {line}")
            elif where == "api.port":
                unit["api"]["port"] = 8000
                self.notes.warn(f"{where}: 8000 is written: {line}")
            elif section == "images":
                self.notes.missing(f"container: {line}; give --image")
            elif where == "memory":
                self.notes.missing(f"memory: {line}, with --memory")
            else:
                self.notes.missing(f"{where}: {line}")


def _binary_size(size: float, *, up: bool) -> str:
    """Return bytes as rack.yaml has them: in G where they are whole ones, else in M."""
    found = -int(-size // 2**20) if up else int(size // 2**20)
    return f"{found // 1024}G" if found % 1024 == 0 else f"{found}M"


def _dump_yaml(value: object) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
    yaml.width = 4096
    text = StringIO()
    yaml.dump(value, text)
    return text.getvalue()


def _list_problems(found: ImportedUnit) -> tuple[ConfigProblem, ...]:
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
        path.write_text(_dump_yaml(rack) + found.yaml(), encoding="utf-8")
        for name, content in found.files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        try:
            load(path)
        except ConfigError as error:
            return tuple(error.faults)
    return ()

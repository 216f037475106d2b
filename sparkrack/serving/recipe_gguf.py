"""Recipes for llama.cpp: the file of the model that one of the hub's names stands for, and what sparkrun adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serving.container_paths import INSIDE_MODELS
from serving.engines.llama_cpp.rules import parts
from serving.engines.option_table import EngineOption
from sparkrack.serving.recipe_options import RecipeOptions
from sparkrack.serving.recipe_text import RecipeNotes

_HUB_FORM = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?", re.ASCII)
_PROJECTOR = re.compile(r"(?:.*/)?mmproj[^/]*\.gguf", re.IGNORECASE)
_NAMES = {
    "max_model_len": "ctx-size",
    "served_model_name": "alias",
    "temperature": "temp",
    "context_length": "ctx-size",
}
"""Keys of `defaults` for which sparkrun has another name than that of the option."""


def hub_name(text: str) -> tuple[str, str]:
    """Return a model as llama-server names it, OWNER/NAME:QUANT, as the name on the hub and the rest."""
    found = _HUB_FORM.fullmatch(text)
    return (found[1], found[2] or "") if found else (text, "")


def default_options(
    defaults: Mapping[str, Any], model: str, known: Mapping[str, EngineOption], notes: RecipeNotes
) -> Iterator[str]:
    """Yield the words that sparkrun makes of a recipe without a command; it leaves out what is not an option.

    Args:
        defaults: of the recipe.
        model: of the recipe: a name on the hub, or a file.
        known: the options of the newest release.
        notes: gets what is left out.
    """
    yield from ("--model" if model.lower().endswith(".gguf") else "--hf-repo", model)
    for key, value in defaults.items():
        name = "--" + _NAMES.get(key, key.replace("_", "-"))
        if key == "mmap" or (key == "max_model_len" and "ctx_size" in defaults):
            continue
        option = known.get(name)
        if option is None:
            if key not in ("tensor_parallel", "pipeline_parallel"):
                notes.warn(f"defaults.{key}: left out: it is not an option of llama-server, and sparkrun drops it, too")
        elif option.count == 0:
            opposite = f"--no-{name[2:]}"
            if value is True or opposite in known:
                yield name if value is True else opposite
        elif isinstance(value, bool):
            yield from (name, "on" if value else "off")
        elif value is not None:
            yield from (name, str(value))


def check_nodes(recipe: Mapping[str, Any], defaults: Mapping[str, Any], notes: RecipeNotes) -> None:
    """Note that a recipe is for several nodes."""
    counts = [recipe.get("min_nodes"), defaults.get("tensor_parallel"), defaults.get("pipeline_parallel")]
    if recipe.get("cluster_only") or any(str(count).isdigit() and int(str(count)) > 1 for count in counts):
        notes.missing(
            "nodes: the recipe is for several nodes, which llama.cpp joins by RPC: it has no key and no time limit; "
            "take a recipe of vLLM or SGLang, or a smaller file of the model and one node in a copy of this recipe"
        )


def context(written: str, sequences: int, shared: bool, notes: RecipeNotes) -> str:
    """Return the tokens of one sequence: `--ctx-size` is what all sequences of `--parallel` share.

    Args:
        written: `--ctx-size`; empty, or 0 for what the model has, where it is left open.
        sequences: those of `--parallel`, 0 where it is left open.
        shared: whether each sequence may take all of it.
        notes: gets what is counted in another way.
    """
    if not written.isdigit() or not int(written):
        return "" if written == "0" else written
    if sequences > 1 and shared:
        notes.warn(
            f"context: {sequences} sequences share {written} tokens (kv-unified); one of them may still take them all"
        )
    each = int(written) // max(sequences, 1)
    if sequences > 1 and each * sequences != int(written):
        notes.warn(f"context: {written} tokens of --ctx-size are written as {sequences} x {each}")
    return str(each)


def put_files(
    unit_files: Sequence[str], quant: str, inside: str, options: RecipeOptions, notes: RecipeNotes, *, recipe: object
) -> str:
    """Return the file of the model, and name its projector in the options.

    Args:
        unit_files: those that are chosen: the model, or its first part, and the projector.
        quant: by which llama-server would choose it on the hub.
        inside: the folder of the model in the container.
        options: of the unit; changed.
        notes: gets what is missing.
        recipe: `mmproj` of the recipe: whether sparkrun is to add one.
    """
    named = [file for file in unit_files if not _PROJECTOR.fullmatch(file)]
    projectors = [file for file in unit_files if _PROJECTOR.fullmatch(file)]
    found = named[0] if named else str(options.keys.pop("gguf", ""))
    if not found:
        what = f"the file of {quant}" if quant else "the file that llama-server would take"
        notes.missing(f"gguf: {what} is known to the hub only; give --gguf, for several parts the first of them")
    elif quant and quant.lower() not in found.lower():
        notes.warn(f"gguf: the recipe serves {quant}, which the name of {found} does not have")
    if projectors and options.args.setdefault("mmproj", f"{inside}/{projectors[0]}"):
        return found
    if "mmproj" not in options.args and recipe not in (None, False):
        notes.missing("mmproj: the file of the projector is known to the hub only; give --gguf a second time with it")
    elif "mmproj" not in options.args and recipe is None and options.args.get("mmproj-auto") is not False:
        notes.warn(
            "mmproj: a model of pictures has a projector, which --hf-repo would load too; give --gguf with it, or "
            "the unit reads text only"
        )
    return found


def fetched(model: str, gguf: str, args: Mapping[str, Any]) -> list[str]:
    """Return the patterns of the files of a model that a unit reads.

    Args:
        model: its name in rack.yaml.
        gguf: the file that is served, where it is the one of this model.
        args: options of the unit.
    """
    split = parts(gguf) if gguf else []
    first = [split[0].replace("-00001-of-", "-*-of-")] if len(split) > 1 else split
    start = f"{INSIDE_MODELS}/{model}/"
    return [*first, *(value[len(start) :] for value in args.values() if str(value).startswith(start))]

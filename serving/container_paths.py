"""Options of a unit that no start can serve: files that its container lacks, and what no completion can prove."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping

from core.model.errors import RuleViolation, counted, truncate
from serving.options import ServedUnit, plain_argument

INSIDE_MODELS, INSIDE_CACHE = "/models", "/cache"
"""Places in the container of a unit: its model, and its compile cache."""
IMAGE_FOLDERS = ("/app", "/opt", "/sgl-workspace", "/usr", "/vllm-workspace", "/workspace")
"""Folders in which images of engines have files of their own. The gate looks each named file up in the container."""

_PLACE_OPTION = re.compile(
    r"tokenizer|generation-config|spec-model|speculative-draft-model|speculative-token-map|init-expert-location"
    r"|lora-modules|lora-paths|default-mm-loras|deepep-config|speculative-adaptive-config|dllm-algorithm-config"
    r"|.*-(template|plugin|path|config-file|input-file)"
)
"""Options whose value may name a file, a folder or a repository that is read."""
_OUTPUT_OPTION = re.compile(r"(fastapi-)?root-path|allowed-local-media-path|file-storage-path|.*-(save|export)-path")
"""Options of that form whose value is not read as a file: a path of the API, or a place to write to."""
_FILE_NAME = re.compile(r"[^{}\s]+\.(bin|gguf|jinja2?|json|jsonl|model|pt|py|safetensors|txt|ya?ml)")


def unservable(unit: ServedUnit, ranks: int) -> Iterator[RuleViolation]:
    """Yield each option of a unit with which it can never serve, or never be proven.

    Args:
        unit: the unit.
        ranks: the number of its nodes.
    """
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    for key, value in args.items():
        for place in named_places(key, value):
            if what := _absent(unit, place):
                yield RuleViolation(("args", key), f"{truncate(place)} {what}", _right(unit, key))
        if why := _unprovable(unit, ranks, key, value, args):
            yield RuleViolation(("args", key), *why)


def container_files(unit: ServedUnit) -> list[str]:
    """Return the paths in its container that the options of a unit name, sorted. Its rules hold."""
    places = {
        posixpath.normpath(place)
        for key, value in unit.args.items()
        for place in named_places(key, plain_argument(value))
        if place.startswith("/")
    }
    return sorted(place for place in places if not _below(place, INSIDE_CACHE))


def named_places(key: str, value: object) -> Iterator[str]:
    """Yield the files, folders and repositories that the value of an option names, as they are written.

    Args:
        key: the long name of the option, without dashes.
        value: its value, as JSON has it.
    """
    if key == "speculative-config":
        config = _json(value)
        if isinstance(config, Mapping):
            yield from _texts([config.get(name) for name in ("model", "tokenizer")])
    elif _PLACE_OPTION.fullmatch(key) and not _OUTPUT_OPTION.fullmatch(key):
        named = key in ("lora-modules", "lora-paths", "default-mm-loras")
        for one in value if isinstance(value, list) else [value]:
            read = _json(one)
            if isinstance(read, Mapping):
                keys = ("path", "lora_path") if key != "default-mm-loras" else tuple(read)
                yield from _texts([read.get(name) for name in keys] if named else [])
            elif isinstance(one, str) and named:
                yield from _texts([one.partition("=")[2] if "=" in one else one])
            else:
                yield from _texts([one])


def _json(value: object) -> object:
    """Return a text that is a JSON object as one; other values as they are."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _texts(values: list[object]) -> Iterator[str]:
    """Yield the texts that name a place. Others are words that the engine knows, or a template in itself."""
    for value in values:
        if not isinstance(value, str) or "{" in value or "\n" in value:
            continue
        if "/" in value or value.startswith("~") or _FILE_NAME.fullmatch(value):
            yield value


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _absent(unit: ServedUnit, place: str) -> str:
    """Return why the container does not have a place; nothing when it has, or may have it in its image."""
    if re.match(r"[a-z0-9+]+://", place):
        return "is fetched over the network, and the rack serves without one"
    if not place.startswith("/"):
        return "is a repository or a path that does not begin with /: the container has neither"
    path = posixpath.normpath(place)
    mounted = [f"{INSIDE_MODELS}/{unit.model}", *([INSIDE_CACHE] if unit.cache else [])]
    if any(_below(path, folder) for folder in (*mounted, *IMAGE_FOLDERS)):
        return ""
    return "is not in the container"


def _right(unit: ServedUnit, key: str) -> str:
    if re.match(r"spec(ulative)?-(config|model|draft)", key):
        return "remove the draft model: a unit has one model"
    return f"put the file into the model and write {INSIDE_MODELS}/{unit.model}/FILE, or name one of the image"


def _unprovable(
    unit: ServedUnit, ranks: int, key: str, value: object, args: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return why no completion can prove a unit with this option, and what is right; None when one can."""
    if key in ("ssl-certfile", "ssl-keyfile"):
        return (
            "the engine would speak TLS, and its proofs are plain HTTP",
            "remove it; serving.gateway gives clients TLS",
        )
    if key == "uds":
        return "the engine would listen on a socket file and on no port", "remove it"
    words = {
        "runner": ("auto", "generate"),
        "convert": ("auto", "none"),
        "task": ("auto", "generate"),
        "disaggregation-mode": ("null",),
    }
    if key in words and value not in words[key]:
        what = f"with {truncate(str(value))} the engine completes no text, and a completion proves a unit"
        return what, "remove it"
    flags = ("is-embedding", "skip-tokenizer-init", "mm-encoder-only", "encoder-only")
    if key in flags and value is True:
        return "the engine completes no text with it, and a completion proves a unit", "remove it"
    if key in ("grpc", "grpc-mode", "smg-grpc-mode") and value is True:
        return "the engine would speak gRPC, and its proofs are HTTP", "remove it"
    if key in ("data-parallel-size", "dp-size", "attn-dp-size", "attention-data-parallel-size"):
        return _copies(unit, ranks, value, args)
    if key == "api-server-count" and unit.engine == "vllm" and ranks > 1:
        return "vLLM refuses it on the ranks that are headless, which all but the first are", "remove it"
    return None


def _copies(unit: ServedUnit, ranks: int, value: object, args: Mapping[str, object]) -> tuple[str, str] | None:
    """SGLang's copies of the attention share the GPUs of the tensor slices; all other copies need their own."""
    if not isinstance(value, int) or value < 2 or (unit.family == "sglang" and args.get("enable-dp-attention") is True):
        return None
    what = f"{value} copies of a model that is split over {counted(ranks, 'node')} need {value * ranks} GPUs"
    return what, "remove it; a further unit serves a further copy"

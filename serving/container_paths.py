"""Options of a unit that name what its container does not have."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping

from core.model.errors import RuleViolation, truncate
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


def unservable(unit: ServedUnit) -> Iterator[RuleViolation]:
    """Yield each option of a unit that names a file, a folder or a repository that its container does not have."""
    for key, value in unit.args.items():
        for place in named_places(key, plain_argument(value)):
            if what := _absent(unit, place):
                yield RuleViolation(("args", key), f"{truncate(place)} {what}", _right(unit, key))


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

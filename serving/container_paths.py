"""Files, folders and repositories that a unit names, and whether its container has them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from core.model.errors import Path, RuleViolation, truncate
from core.model.model_lock import ModelRecord
from serving.engines.json_option import structured_value
from serving.options import ServedUnit, plain_argument

INSIDE_MODELS, INSIDE_CACHE = "/models", "/cache"
"""Places in the container of a unit: its models, and its compile cache."""
_EVERYWHERE = ("/tmp", "/dev/shm", "/dev/null")  # noqa: S108 - in a container of its own
"""Places of each container to which a variable may send what a program writes."""

_PLACE_OPTION = re.compile(
    r"tokenizer|generation-config|spec-model|speculative-draft-model|speculative-token-map|init-expert-location"
    r"|lora-modules|lora-paths|default-mm-loras|deepep-config|speculative-adaptive-config|dllm-algorithm-config"
    r"|lora|lora-scaled|control-vector|control-vector-scaled|mmproj|model-draft|spec-draft-model|lookup-cache-static"
    r"|mcp-servers-config|path|.*-(template|plugin|path|file)"
)
"""Options whose value may name a file, a folder or a repository that is read."""
_PLACE_KEY = re.compile(r"model|tokenizer|(.*_)?(path|file|template)")
"""The same for a key of a value that is a mapping."""
_WITHOUT_PLACE = re.compile(
    r"served-model-name|(tokenizer-|code-)?revision|(fastapi-)?root-path|file-storage-path|.*-(save|export)-path"
    r"|log-file|log-prompts-dir|lookup-cache-dynamic|slot-save-path"
)
"""Options whose value may look like a place that is read, and is a name, a path of the API, or a place to write to."""
_FILE_LIST = re.compile(r"(lora|control-vector)(-scaled)?")
"""Options of llama.cpp whose text is FILE,FILE, or with -scaled FILE:NUMBER,FILE:NUMBER (its common/arg.cpp)."""
_FILE_NAME = re.compile(r"[^{}\s]+\.(bin|gguf|jinja2?|json|jsonl|model|pt|py|safetensors|txt|ya?ml)")
_HUB_NAME = re.compile(r"(?![0-9]+/[0-9]+$)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_NAMED_VALUE = re.compile(r"[\w.-]+=(.+)", re.ASCII)
_URL = re.compile(r"[a-z0-9+]+://")
ACCEPTED_BEFORE, ACCEPTED_CUSTOM = "before", "custom"
"""The keys of `accept` for paths in the words of `before`, and of the commands of a custom engine."""


class NamedPlace(NamedTuple):
    """A place that a unit names: `path` in its section, `key` of `accept` for it, and the `place` as it is written.

    `read`: whether a start ends without it.
    """

    path: Path
    key: str
    place: str
    read: bool


def unservable(
    unit: ServedUnit, models: Collection[str] = (), records: Mapping[str, ModelRecord] = MappingProxyType({})
) -> Iterator[RuleViolation]:
    """Yield each place that a unit names and its container does not have.

    Args:
        unit: the unit.
        models: the names of all models of the rack.
        records: the models of the lock file by name, as far as they are those of the rack file.
    """
    for one in unit_places(unit):
        # Nothing but the mount itself is there, whatever the image has.
        accepted = one.key in unit.accept and not _is_mounted(unit, posixpath.normpath(one.place))
        if not accepted and (why := absent(unit, one, models, records)):
            yield RuleViolation(one.path, f"{truncate(one.place)} {why[0]}", why[1])


def unit_places(unit: ServedUnit) -> Iterator[NamedPlace]:
    """Yield the places that options, variables, the program before the engine, and the commands of a custom engine
    name."""
    for key, value in unit.args.items():
        for place, read in _option_places(key, plain_argument(value)).items():
            yield NamedPlace(("args", key), key, place, read)
    for key, text in unit.env.items():
        for place in variable_places(key, text):
            yield NamedPlace(("env", key), key, place, False)
    for number, word in enumerate(unit.before or ()):
        # The gate looks for the program itself.
        if number and _is_path(word):
            yield NamedPlace(("before", number), ACCEPTED_BEFORE, word, False)
    if unit.custom:
        for key in ("command", "worker_command"):
            for number, word in enumerate(getattr(unit.custom, key) or ()):
                for place in _command_places(unit, word):
                    yield NamedPlace(("custom", key, number), ACCEPTED_CUSTOM, place, True)


def _command_places(unit: ServedUnit, word: str) -> Iterator[str]:
    """Yield what a word of a custom command names of models and of the unit's files. Other paths are of the image."""
    own = f"{INSIDE_MODELS}/{unit.model}"
    for place, _ in _list_places(word.replace("{model}", own), False):
        path = posixpath.normpath(place)
        if path != own and any(_is_within(path, folder) for folder in (INSIDE_MODELS, *unit.files)):
            yield place


def container_files(unit: ServedUnit) -> list[str]:
    """Return the paths in its container that a start of a unit needs, sorted. Its rules hold."""
    places = {
        posixpath.normpath(one.place)
        for one in unit_places(unit)
        if one.place.startswith("/") and (one.read or _is_mounted(unit, posixpath.normpath(one.place)))
    }
    return sorted(place for place in places if not _is_within(place, INSIDE_CACHE) and ":" not in place)


def named_places(key: str, value: object) -> Iterator[str]:
    """Yield the files, folders and repositories that the value of an option names, as they are written.

    Args:
        key: the long name of the option, without dashes.
        value: its value, as JSON has it.
    """
    yield from _option_places(key, value)


def read_places(key: str, value: object) -> Iterator[str]:
    """Yield those of them that the engine reads at its start, by the name of the option."""
    yield from (place for place, read in _option_places(key, value).items() if read)


def _option_places(key: str, value: object) -> dict[str, bool]:
    """Return each place that the value of an option names, and whether it is read at a start."""
    found: dict[str, bool] = {}
    if _WITHOUT_PLACE.fullmatch(key):
        return found
    if _FILE_LIST.fullmatch(key) and isinstance(value, str):
        value = [one.rpartition(":")[0] or one if key.endswith("-scaled") else one for one in value.split(",")]
    for place, read in _list_places(value, _PLACE_OPTION.fullmatch(key) is not None):
        found[place] = found.get(place, False) or read
    return found


def variable_places(name: str, text: str) -> Iterator[str]:
    """Yield the files, folders and repositories that the value of a variable names."""
    value = structured_value(text)
    if isinstance(value, Mapping | list):
        yield from dict.fromkeys(place for place, _ in _list_places(value, False))
    elif _HUB_NAME.fullmatch(text) and name != "TZ":
        yield text
    elif not _URL.match(text):
        words = (word for word in re.split(r"[:,;\s]", text) if _is_path(word))
        yield from dict.fromkeys(
            word for word in words if not any(_is_within(posixpath.normpath(word), place) for place in _EVERYWHERE)
        )


def _list_places(value: object, read: bool) -> Iterator[tuple[str, bool]]:
    """Yield the places in a value, each with whether it is read at a start."""
    value = structured_value(value)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_places(inner, bool(_PLACE_KEY.fullmatch(str(key))) or (read and "path" not in value))
    elif isinstance(value, list):
        for inner in value:
            yield from _list_places(inner, read)
    elif isinstance(value, str) and "{" not in value and "\n" not in value:
        named = _NAMED_VALUE.fullmatch(value)
        if _is_place(text := named[1] if named else value, read):
            yield text, read


def _is_place(text: str, read: bool) -> bool:
    """Return whether a text names a place. Others are words that the engine knows."""
    if _URL.match(text):
        return read
    if _is_path(text) or _HUB_NAME.fullmatch(text):
        return read or not re.search(r"\s", text)
    return read and ("/" in text or _FILE_NAME.fullmatch(text) is not None)


def _is_path(text: str) -> bool:
    return len(text) > 1 and text.startswith(("/", "~", "./", "../"))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def mounted_models(unit: ServedUnit) -> tuple[str, ...]:
    """Return the names of the models in the container of a unit."""
    return (unit.model, *unit.also)


def _is_mounted(unit: ServedUnit, path: str) -> bool:
    mounted = [f"{INSIDE_MODELS}/{name}" for name in mounted_models(unit)]
    mounted += [*unit.files, *([INSIDE_CACHE] if unit.kept_cache else [])]
    return any(_is_within(path, folder) for folder in mounted)


def absent(
    unit: ServedUnit,
    named: NamedPlace,
    models: Collection[str] = (),
    records: Mapping[str, ModelRecord] = MappingProxyType({}),
) -> tuple[str, str] | None:
    """Return why the container does not have a place by what is mounted into it, and what is right; None if it has.

    Args:
        unit: the unit.
        named: the place.
        models: the names of all models of the rack.
        records: the models of the lock file by name, as far as they are those of the rack file.
    """
    place = named.place
    reason = f"or give the reason why the container has it at accept.{named.key}"
    if _URL.match(place):
        what = "is fetched over the network, and the rack serves without one"
        return what, f"list a file at files and write its path there, {reason}"
    if not place.startswith("/"):
        what = "is a repository or a path that does not begin with /: the container has neither"
        model = f"declare it in models, list its name at also and write {INSIDE_MODELS}/NAME"
        file = "list the file at files and write its path there"
        return what, f"{model if _HUB_NAME.fullmatch(place) else file}, {reason}"
    path = posixpath.normpath(place)
    for inside, source in unit.files.items():
        if _is_within(path, inside):
            beside = source / path[len(inside) + 1 :]
            if source.exists() and ":" not in path and not beside.exists():
                what = f"is not in the container: {source.name} has no {path[len(inside) + 1 :] or 'content'}"
                return what, "correct the path, or add the file there"
            return None
    parts = path.split("/")
    if _is_mounted(unit, path):
        if _is_within(path, INSIDE_MODELS) and (record := records.get(parts[2])):
            within = "/".join(parts[3:])
            if within and not any(_is_within(file.path, within) for file in record.files):
                what = f"is not in the container: the lock file has no {truncate(within)} of {parts[2]}"
                return what, f"correct the path, or list the file at models.{parts[2]}.files"
        return None
    if _is_within(path, INSIDE_MODELS) and len(parts) > 2 and parts[2] in models:
        return "is not in the container", f"write also: [{', '.join((*unit.also, parts[2]))}]"
    if _is_within(path, INSIDE_MODELS):
        return "is not in the container", f"declare the model in models and list its name at also, {reason}"
    if any(_is_within(path, folder) for folder in ("/proc", "/sys", "/dev")):
        return "is not in the container", reason.removeprefix("or ")
    return "is not in the container", f"list it at files, like {{{path}: FILE}}, {reason}"

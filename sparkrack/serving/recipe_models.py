"""The models, files and places that a recipe names, as models of rack.yaml and places in the container of a unit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.model.errors import truncate
from serving.container_paths import INSIDE_MODELS, named_places, read_places, variable_places
from sparkrack.serving.recipe_before import INSIDE_RECIPE, BeforeEngine
from sparkrack.serving.recipe_registry import RecipeSource, file_beside
from sparkrack.serving.recipe_text import RecipeNotes, json_or_text

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_FILE = re.compile(r".*\.(bin|jinja2?|json|jsonl|model|pt|py|so|txt|ya?ml)")
_HUB_CACHE = re.compile(r"/.*/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{6,40})(/.*)?", re.ASCII)
_CACHE_FOLDER = re.compile(r"(/root/\.cache|/cache)/huggingface(/.*)?")
"""Places at which sparkrun and eugr mount the author's cache of the hub: no image has what lies there."""
_LONGEST_NAME = 63
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}")


@dataclass
class RecipeModels:
    """Models by their name in rack.yaml, the one that is served first.

    `main`: the model of the recipe. `mounted`: models by the path at which the recipe mounts a folder with them.
    """

    notes: RecipeNotes
    source: RecipeSource
    main: str
    mounted: Mapping[str, str]
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    accept: dict[str, str] = field(default_factory=dict)

    def add(self, source: str, revision: str = "") -> str:
        """Return the name of a model in rack.yaml, with an entry for it."""
        for name, entry in self.entries.items():
            if entry["source"] == source:
                if revision and entry.setdefault("revision", revision) != revision:
                    self.notes.missing(
                        f"model {source}: has revision {entry['revision']} and {revision}; write one of them into a "
                        "copy of the recipe"
                    )
                return name
        short = source.rpartition("/")[2]
        names = [_model_name(text) for text in (short, source.replace("/", "-"))]
        name = next((one for one in names if one not in self.entries), names[0][:-1] + "2")
        self.entries[name] = {"source": source, **({"revision": revision} if revision else {})}
        return name

    def rename(self, name: str, asked: str) -> str:
        """Give a model the name by which clients ask for it, where rack.yaml can have it; return the name it has."""
        if asked in self.entries or not _NAME.fullmatch(asked):
            return name
        self.entries = {asked if old == name else old: entry for old, entry in self.entries.items()}
        return asked

    def add_served(self, served: str, revision: str) -> str:
        """Return the name of the model that is served: the one of the command, else that of the recipe."""
        found = self.repository(served or self.main)
        if found is None and served and served != self.main:
            self.notes.missing(
                f"command: serves {served}, which is not a model on the hub; write OWNER/NAME into a copy of the recipe"
            )
        elif found is None:
            what = f"model {self.main}: is not the name of a model on the hub" if self.main else "model: is missing"
            self.notes.missing(f"{what}; write OWNER/NAME")
        name, at, _ = found or ("missing/model", "", "")
        if found and self.main and name != self.main and _HUB_NAME.fullmatch(self.main):
            self.notes.warn(f"command: serves {name}, and not {self.main}, the model of the recipe")
        return self.add(name, revision or at)

    def repository(self, place: str) -> tuple[str, str, str] | None:
        """Return the hub's name, the revision and the rest of a path to a model; None when it is not one."""
        if found := _HUB_CACHE.fullmatch(place):
            return f"{found[1]}/{found[2]}", found[3], found[4] or ""
        for inside, source in self.mounted.items():
            if place == inside or place.startswith(f"{inside}/"):
                return source, "", place[len(inside) :]
        return (place, "", "") if _HUB_NAME.fullmatch(place) and not _FILE.fullmatch(place) else None

    def put_in_container(self, args: dict[str, Any], env: dict[str, str], before: BeforeEngine) -> None:
        """Make each place that an option or a variable names one of the container, or give the reason why it is.

        Args:
            args: options by their long name; changed.
            env: variables; changed.
            before: what the recipe puts into the container; files beside the recipe are added to it.
        """
        for key, value in list(args.items()):
            read = {*read_places(key, value)}
            revision = str(value.get("revision") or "") if isinstance(value, Mapping) else ""
            for place in named_places(key, value):
                if new := self._translate_place(
                    f"args.{key}", place, revision, before, place in read or place.endswith(".gguf")
                ):
                    args[key] = replaced_place(args[key], place, new)
        for key, text in list(env.items()):
            for place in variable_places(key, text):
                if new := self._translate_place(f"env.{key}", place, "", before, place == self.main):
                    env[key] = env[key].replace(place, new)

    def _translate_place(self, where: str, place: str, revision: str, before: BeforeEngine, read: bool) -> str:
        """Return the place in the container that stands for one of the recipe; empty where it stays as it is."""
        key = where.partition(".")[2]
        if any(place.startswith(f"{INSIDE_MODELS}/{name}/") for name in self.entries):
            return ""
        if read and (found := self.repository(place)):
            name, at, rest = found
            return f"{INSIDE_MODELS}/{self.add(name, revision or at)}{rest}"
        if part := before.brings(place):
            self.accept.setdefault(key, f"{part} of {self.source.title} puts {place} there before the engine starts")
        elif not place.startswith(("/", "~")) and (content := file_beside(place, self.source)) is not None:
            before.files[f"files/{place}"] = content
            return f"{INSIDE_RECIPE}/files/{place}"
        elif "://" in place or place.startswith("~") or ("/" not in place and _FILE.fullmatch(place)):
            self._note_absent_place(where, place, "put the file beside the recipe, and write its name there")
        elif read and _CACHE_FOLDER.fullmatch(place):
            self._note_absent_place(where, place, "write the model's OWNER/NAME into a copy of the recipe")
        elif not place.startswith("/") and not _FILE.fullmatch(place):
            self._note_absent_place(where, place, "write a path in the container into a copy of the recipe")
        else:
            folder = "" if place.startswith("/") else " in the folder in which it starts"
            self.accept.setdefault(key, f"{self.source.title} has {place} in its image{folder}")
        return ""

    def _note_absent_place(self, where: str, place: str, right: str) -> None:
        self.notes.missing(
            f"{where}: {truncate(place)} is not in the container, and the recipe does not bring it; {right}"
        )


def mounted_models(volumes: Sequence[object], main: str, draft: str) -> dict[str, str]:
    """Return the models of a recipe by the path at which its volumes mount a folder with one of them.

    A folder of the author's machine has a model where it is called so; at /model it is the one of the recipe.
    """
    found: dict[str, str] = {}
    for volume in volumes:
        outside, inside = volume_paths(volume)
        name = outside.rstrip("/").rpartition("/")[2].lower()
        for model in filter(None, (main, draft)):
            if name == model.rpartition("/")[2].lower() or (inside == "/model" and model == main):
                found[inside] = model
    return found


def volume_paths(volume: object) -> tuple[str, str]:
    """Return the path of a volume outside of the container, and inside of it."""
    outside, _, rest = str(volume).partition(":")
    return outside, rest.partition(":")[0]


def is_hub_cache(path: str) -> bool:
    """Return whether a path in the container is that of the author's cache of the hub, whose models a unit mounts."""
    return _CACHE_FOLDER.fullmatch(path) is not None


def is_hub_name(text: str) -> bool:
    """Return whether a text is the name of a model on the hub."""
    return _HUB_NAME.fullmatch(text) is not None


def _model_name(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_LONGEST_NAME].rstrip("-._")


def replaced_place(value: Any, place: str, new: str) -> Any:
    """Return the value of an option with another place, also inside of JSON and of NAME=PLACE."""
    if isinstance(value, dict):
        return {key: replaced_place(inner, place, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced_place(inner, place, new) for inner in value]
    if not isinstance(value, str):
        return value
    if isinstance(inner := json_or_text(value), dict | list):
        return json.dumps(replaced_place(inner, place, new))
    return new if value == place else f"{value[: -len(place)]}{new}" if value.endswith(f"={place}") else value

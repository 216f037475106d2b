"""Registries of recipes: git folders like those of sparkrun and eugr, with recipes and mods, found by name."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from core.model.errors import printable_line
from core.util import regular_file
from serving.unit_files import MOST_BYTES, MOST_FILES
from sparkrack.serving.recipe_text import RecipeError, read_recipe

_MANIFEST = Path(".sparkrun", "registry.yaml")
"""File of sparkrun in which a git folder says where its recipes and mods lie."""
_ENDINGS = (".yaml", ".yml")
_LARGEST_RECIPE = 1024 * 1024
_CLONE_SECONDS = 120
_PARENTS = 4
"""Folders above a recipe in which its mods are looked for."""


@dataclass(frozen=True)
class Registry:
    """A collection of recipes by its name; `recipes` and `mods`: folders of them inside `folder`."""

    name: str
    folder: Path
    recipes: Path
    mods: Path

    def files(self) -> Iterator[Path]:
        """Yield its recipes, sorted by path; none that a link takes from outside of its folder."""
        found = (path for path in self.recipes.rglob("*") if path.suffix in _ENDINGS and path.is_file())
        yield from sorted(path for path in found if _resolve_below(self.folder, str(path)))


@dataclass(frozen=True)
class RecipeSource:
    """Where a recipe stands: its file, the registry that it is from, and all registries that have mods."""

    path: Path | None = None
    registry: Registry | None = None
    registries: tuple[Registry, ...] = ()

    @property
    def title(self) -> str:
        """The recipe as a reason names it."""
        name = f"recipe {self.path.stem}" if self.path else "the recipe"
        return printable_line(f"{name} of {self.registry.name}" if self.registry else name)


def folder_registries(folder: Path, name: str = "") -> tuple[Registry, ...]:
    """Return the registries of a folder: those of its manifest, else one. Raises RecipeError.

    Args:
        folder: the folder.
        name: what a folder without a manifest is called; its own name if empty.
    """
    if not folder.is_dir():
        raise RecipeError(f"{folder}: is not a folder; name one with --registry")
    root = folder.resolve()
    if (root / _MANIFEST).is_file():
        return tuple(_list_declared_registries(root, _read_text(root / _MANIFEST)))
    recipes = root / "recipes" if (root / "recipes").is_dir() else root
    return (Registry(name or root.name, root, recipes, root / "mods"),)


def _list_declared_registries(root: Path, text: str) -> Iterator[Registry]:
    entries = read_recipe(text)[0].get("registries")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("recipes"):
            recipes = _resolve_below(root, str(entry["recipes"]))
            mods = _resolve_below(root, str(entry.get("mods") or "mods"))
            if recipes and mods:
                yield Registry(str(entry.get("name") or root.name), root, recipes, mods)


def cloned(url: str, folder: Path) -> Path:
    """Return the folder of a git repository that is fetched without its history. Raises RecipeError."""
    argv = ("git", "clone", "--quiet", "--depth", "1", "--single-branch", "--", url, str(folder))
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:git:file"}
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=_CLONE_SECONDS, check=False)
    except FileNotFoundError:
        raise RecipeError("git is not installed; install it, or name a folder with --registry") from None
    except subprocess.TimeoutExpired:
        raise RecipeError(f"{url}: is not there after {_CLONE_SECONDS} s; clone it and name the folder") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise RecipeError(f"{url}: cannot be cloned: {lines[0]}")
    return folder


def implied_registries(path: Path) -> tuple[Registry, ...]:
    """Return the registries of the folder around a recipe that has mods or a manifest; none if there is not one."""
    for parent in list(path.resolve().parents)[:_PARENTS]:
        if (parent / _MANIFEST).is_file() or (parent / "mods").is_dir():
            return folder_registries(parent)
    return ()


def find_recipe(name: str, registries: Sequence[Registry]) -> RecipeSource:
    """Return the recipe of a name like glm-5.3-flash, 4x/glm-5.3-flash or @eugr/glm-5.3-flash. Raises RecipeError."""
    scope, wanted = _split_scope(name)
    wanted = wanted.removesuffix(".yaml").removesuffix(".yml")
    searched = [one for one in registries if not scope or one.name == scope]
    if not searched:
        what = f"no registry is called {scope}" if scope else "no registry is given"
        raise RecipeError(f"is not a file, and {what}; name one with --registry")
    known: dict[str, list[tuple[Registry, Path]]] = {}
    for registry in searched:
        for path in registry.files():
            below = path.relative_to(registry.recipes).with_suffix("").as_posix()
            for called in {below, path.stem}:
                known.setdefault(called, []).append((registry, path))
    found = known.get(wanted, [])
    if len(found) == 1:
        ((registry, path),) = found
        return RecipeSource(path, registry, tuple(registries))
    names = ", ".join(one.name for one in searched)
    if found:
        places = ", ".join(f"@{one.name}/{path.relative_to(one.recipes).with_suffix('')}" for one, path in found)
        raise RecipeError(f"is the name of several recipes; write one of {places}, or the path of its file")
    near = get_close_matches(wanted, known, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; name another registry with --registry"
    raise RecipeError(f"is neither a file nor a recipe of {names}{hint}")


def find_mod(reference: str, source: RecipeSource) -> tuple[str, Mapping[str, bytes]] | None:
    """Return the name of a mod and its files by their path in it; None where no registry has it. Raises RecipeError.

    It is looked for as sparkrun does: beside the recipe, in the recipe's registry, then in the other registries.
    """
    scope, rest = _split_scope(reference)
    below = rest.removeprefix("mods/")
    places: list[tuple[Path, Path]] = []
    if not scope and source.path:
        beside = source.path.resolve().parent
        root = source.registry.folder if source.registry else beside
        places += [(root, beside / below), (root, beside / "mods" / below)]
    ordered = [*([source.registry] if source.registry else []), *source.registries]
    places += [(one.folder, one.mods / below) for one in ordered if not scope or one.name == scope]
    for root, place in places:
        if _resolve_below(root, str(place)) and (place / "run.sh").is_file():
            return place.name, mod_files(place)
    return None


def mod_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their path in it. Raises RecipeError for a link, and for too many of them."""
    found: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise RecipeError(f"mods: {folder.name}/{name} is a link; put the file itself there")
        if path.is_dir():
            continue
        found[name] = _read_bytes(path, MOST_BYTES)
        size += len(found[name])
        if size > MOST_BYTES or len(found) > MOST_FILES:
            what = f"has more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files"
            raise RecipeError(f"mods: {folder.name} {what}; put it into the image")
    return found


def read_file(path: Path) -> str:
    """Return the text of a recipe. Raises RecipeError."""
    return _read_text(path)


def file_beside(path: str, source: RecipeSource) -> bytes | None:
    """Return the content of a file beside the recipe, None where there is not one."""
    if source.path is None:
        return None
    beside = source.path.resolve().parent
    place = _resolve_below(beside, path)
    return _read_bytes(place, MOST_BYTES) if place and place.is_file() and not place.is_symlink() else None


def _split_scope(name: str) -> tuple[str, str]:
    found = re.fullmatch(r"@([^/]+)/(.+)", name)
    return (found[1], found[2]) if found else ("", name)


def _resolve_below(root: Path, path: str) -> Path | None:
    """Return a path below a folder, also by its links; None where it leaves the folder."""
    found = (root / path).resolve()
    return found if found == root or root in found.parents else None


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path, _LARGEST_RECIPE).decode()
    except UnicodeDecodeError as error:
        raise RecipeError(f"cannot be read: {error}") from None


def _read_bytes(path: Path, largest: int) -> bytes:
    try:
        found = regular_file.read_bytes(path, largest + 1)
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(found) > largest:
        raise RecipeError(f"{path.name}: has more than {largest // 2**20} MiB; put it into the image")
    return found


def registries_of(options: Iterable[str], clones: Path) -> tuple[Registry, ...]:
    """Return the registries that were named as [NAME=]FOLDER or [NAME=]URL. Raises RecipeError.

    Args:
        options: what was named, in order.
        clones: a folder for what is cloned. Without a URL nothing is connected to.
    """
    found: list[Registry] = []
    for number, option in enumerate(options):
        named = re.fullmatch(r"([A-Za-z0-9][\w.-]*)=(.+)", option)
        name, place = (named[1], named[2]) if named else ("", option)
        if re.match(r"[a-z+]+://|[\w.-]+@[\w.-]+:", place):
            usual = place.rstrip("/").rpartition("/")[2].removesuffix(".git")
            found += folder_registries(cloned(place, clones / f"{number}-{usual}"), name or usual)
        else:
            found += folder_registries(Path(place).expanduser(), name)
    return tuple(found)


def named_source(recipe: str, options: Sequence[str], clones: Path) -> RecipeSource:
    """Return where a recipe stands that is named by its file, or by its name in a registry. Raises RecipeError.

    Args:
        recipe: the path of a file, or a name.
        options: the registries that were named; the first one that has a recipe or a mod counts.
        clones: a folder for what is cloned.
    """
    registries = registries_of(options, clones)
    path = Path(recipe)
    if path.is_file() or recipe.endswith(_ENDINGS) or recipe in (".", ".."):
        registries = (*(registries or implied_registries(path)),)
        own = next((one for one in registries if one.folder in path.resolve().parents), None)
        return RecipeSource(path, own, registries)
    return find_recipe(recipe, registries)

"""A recipe by its name or file, and the files that its unit needs, below the folder of rack.yaml."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from core.model.errors import printable_line, reason
from core.util import regular_file
from core.util.command_error import CommandError
from sparkrack.serving.recipe import ImportedUnit, RecipeChoices, import_recipe, unit_name
from sparkrack.serving.recipe_registry import named_source, read_file
from sparkrack.serving.recipe_text import RecipeError


def import_named_recipe(
    recipe: str, registries: Sequence[str], choices: RecipeChoices, ask: Callable[[str, str], str] | None
) -> ImportedUnit:
    """Import a recipe: a file, or its name in a registry. Only a registry that is a URL is connected to.

    choices: an empty name is made from that of the recipe. ask: returns the reason of an entry of accept. Raises
    CommandError with all that does not come over.
    """
    if PurePosixPath(choices.folder).is_absolute() or ".." in PurePosixPath(choices.folder).parts:
        raise CommandError(f"--files {printable_line(choices.folder)}: is not a path in the folder of rack.yaml")
    try:
        with tempfile.TemporaryDirectory() as clones:
            source = named_source(recipe, registries, Path(clones))
            name = choices.name or unit_name(source.path.stem if source.path else recipe)
            choices = replace(choices, name=name, folder=choices.folder.strip("/"))
            return import_recipe(read_file(source.path or Path(recipe)), choices, source, ask)
    except RecipeError as error:
        raise CommandError(_refusal_text(recipe, error)) from None


def _refusal_text(recipe: str, error: RecipeError) -> str:
    lines = [printable_line(problem) for problem in error.problems]
    if len(lines) == 1:
        return printable_line(f"{recipe}: {lines[0]}")
    return "\n  ".join([printable_line(f"{recipe}: {len(lines)} things do not come over:"), *lines])


def write_recipe_files(files: Mapping[str, bytes], *, force: bool) -> Iterator[str]:
    """Write all files, or none where one has another content, unless `force`; yield each path. Raises CommandError."""
    differing = [name for name, content in files.items() if _differs_from_content(Path(name), content)]
    if differing and not force:
        raise CommandError(
            f"{printable_line(differing[0])}: is there with another content; --force writes over it, --files names "
            "another folder; nothing was written"
        )
    for name, content in files.items():
        path = Path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                path.unlink()
            path.write_bytes(content)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
        except OSError as error:
            raise CommandError(f"{printable_line(name)}: cannot be written: {reason(error)}") from None
        yield name


def _differs_from_content(path: Path, content: bytes) -> bool:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return True
    return path.exists() and regular_file.read_bytes(path) != content

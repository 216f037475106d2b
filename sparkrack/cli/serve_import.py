"""`sparkrack serve import`: a recipe of sparkrun or of eugr/spark-vllm-docker as entries of rack.yaml."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from core.model.errors import printable_line
from sparkrack.serving.recipe import RecipeChoices
from sparkrack.serving.recipe_files import import_named_recipe, write_recipe_files
from sparkrack.terminal.prompts import ask, has_terminal


@click.command("import")
@click.argument("recipe", metavar="NAME|FILE")
@click.option(
    "--registry",
    "registries",
    multiple=True,
    metavar="[NAME=]FOLDER|URL",
    help="A git folder with recipes and mods; repeatable. A URL is cloned.  [default: the folder around FILE]",
)
@click.option("--name", metavar="NAME", help="Name of the unit.  [default: from that of the file]")
@click.option("--image", metavar="IMAGE", help="With a tag that stays, or a digest.  [default: that of the recipe]")
@click.option(
    "--version", metavar="VERSION", help="Of the engine in the image.  [default: as the recipe or the tag has it]"
)
@click.option("--context", type=click.IntRange(1), help="Tokens of the longest sequence.  [default: of the recipe]")
@click.option("--sequences", type=click.IntRange(1), help="Sequences at once.  [default: of the recipe]")
@click.option("--memory", type=float, metavar="SHARE", help="Share of a node, like 0.85.  [default: of the recipe]")
@click.option("--kv", metavar="SIZE", help="Size of the cache of llama.cpp, like 20G.")
@click.option(
    "--gguf", multiple=True, metavar="FILE", help="File of the model for llama.cpp; again for the one of pictures."
)
@click.option("--nodes", metavar="NAMES", help="Nodes in rank order, like spark1,spark2.  [default: placeholders]")
@click.option(
    "--rack",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Take the first nodes of this rack, instead of --nodes.",
)
@click.option(
    "--files",
    "folder",
    metavar="FOLDER",
    default="",
    help="For mods and files of the recipe, in the folder of rack.yaml.  [default: recipes/UNIT]",
)
@click.option("--force", is_flag=True, help="Write over files that are there and differ.")
def import_unit(
    recipe: str,
    registries: tuple[str, ...],
    name: str | None,
    image: str | None,
    version: str | None,
    context: int | None,
    sequences: int | None,
    memory: float | None,
    kv: str | None,
    gguf: tuple[str, ...],
    nodes: str | None,
    rack: Path | None,
    folder: str,
    force: bool,
) -> None:
    """Print a recipe as entries of images, models and serving for rack.yaml.

    \b
      sparkrack serve import glm-5.3-flash --registry ../eugr-recipes --version 0.33.0 --nodes spark1,spark2
      sparkrack serve import recipes/deepseek-v4-flash.yaml --version 0.21.0

    The recipe is a YAML file of sparkrun or of eugr/spark-vllm-docker, or its name in a registry: a folder, or a git
    URL. Only a URL is connected to. The whole recipe comes over, or it is refused with all that is missing and what to
    do about each. What has another place in rack.yaml is a warning on stderr. Mods and files of the recipe are written
    to --files; run this in the folder of rack.yaml. What is printed is valid there, and has to be added by hand. On a
    terminal the reason of each entry of accept is asked for; without one it names the recipe.

    Exit 0, or 1 when the recipe does not come over whole; then nothing is written.
    """
    chosen = tuple(one.strip() for one in nodes.split(",")) if nodes else ()
    if chosen and rack:
        raise click.UsageError("give --nodes or --rack, not both")
    present = tuple(load(rack).nodes) if rack else ()
    choices = RecipeChoices(name or "", image, version, context, sequences, memory, chosen, folder, kv, gguf, present)
    found = import_named_recipe(recipe, registries, choices, _ask_reason if has_terminal() else None)
    for path in write_recipe_files(found.files, force=force):
        click.echo(f"{printable_line(path)}: written", err=True)
    for warning in found.warnings:
        click.echo(printable_line(f"warning: {recipe}: {warning}"), err=True)
    click.echo(found.yaml(), nl=False)


def _ask_reason(key: str, usual: str) -> str:
    """Ask why a unit has what no table and no mount has; what is typed stands in rack.yaml, where others read it."""
    while True:
        typed = ask(printable_line(f"{key}: why is it accepted?"), usual).strip()
        if typed.isprintable() and typed:
            return typed
        click.echo("A reason is one line of text.", err=True)

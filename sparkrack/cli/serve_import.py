"""`sparkrack serve import`: a recipe of sparkrun or of eugr/spark-vllm-docker as entries of rack.yaml."""

from __future__ import annotations

from pathlib import Path

import click

from core.model.errors import printable_line
from core.util import regular_file
from sparkrack.serving.recipe import RecipeChoices, RecipeError, import_recipe, unit_name

_LARGEST = 1024 * 1024
"""Bytes that are read of a recipe: far more than one has."""


@click.command("import")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the unit.  [default: from that of the file]")
@click.option("--image", metavar="IMAGE", help="With a tag that stays, or a digest.  [default: that of the recipe]")
@click.option(
    "--version", metavar="VERSION", help="Of the engine in the image.  [default: as the recipe or the tag has it]"
)
@click.option("--context", type=click.IntRange(1), help="Tokens of the longest sequence.  [default: of the recipe]")
@click.option("--nodes", metavar="NAMES", help="Nodes in rank order, like spark1,spark2.  [default: placeholders]")
def import_unit(
    recipe: Path, name: str | None, image: str | None, version: str | None, context: int | None, nodes: str | None
) -> None:
    """Print a recipe as entries of images, models and serving for rack.yaml. Nothing is connected to.

    \b
      sparkrack serve import recipes/deepseek-v4-flash.yaml --version 0.21.0 --nodes spark1,spark2

    RECIPE is a YAML file of sparkrun or of eugr/spark-vllm-docker. What it does not say, or in a way that rack.yaml
    refuses (an image with the tag latest), has to be given. Each thing in it that has no counterpart in
    rack.yaml is a warning on stderr. What is printed is valid in rack.yaml, and has to be added by hand.

    Exit 0, or 1 with one line when the recipe cannot be turned into a unit.
    """
    chosen = tuple(one.strip() for one in nodes.split(",")) if nodes else ()
    choices = RecipeChoices(name or unit_name(recipe.stem), image, version, context, chosen)
    try:
        text = regular_file.read_bytes(recipe, _LARGEST).decode()
        found = import_recipe(text, choices)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.ClickException(printable_line(f"{recipe}: cannot be read: {reason}")) from None
    except RecipeError as error:
        raise click.ClickException(printable_line(f"{recipe}: {error}")) from None
    for warning in found.warnings:
        click.echo(printable_line(f"warning: {recipe}: {warning}"), err=True)
    click.echo(found.yaml(), nl=False)

"""`sparkrack serve export`: a unit of rack.yaml as the files of another system."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from core.model.errors import printable_line
from core.util.command_error import CommandError
from sparkrack.cli.options import rack_option
from sparkrack.serving.export.files import FORMATS, export_files, write_export


@click.command("export")
@click.argument("unit", metavar="UNIT")
@click.option("--format", "form", type=click.Choice(tuple(FORMATS)), required=True, help="The other system.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the files there, with names of their own.  [default: stdout, for one file]",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@rack_option
def export_unit(unit: str, form: str, output: Path | None, force: bool, rack: Path) -> None:
    """Print or write a unit of rack.yaml as the files of another system. Nothing is connected to.

    \b
      sparkrack serve export qwen --format lws > qwen.lws.yaml
      sparkrack serve export qwen --format ray --output exported

    lws: a LeaderWorkerSet of Kubernetes. ray: a cluster for `ray up` and the command that serves on it, for vllm-ray.

    Each rank runs the command that `sparkrack serve render` prints, apart from addresses. No secret is in a file: its
    head says where the key of the API belongs, and what the other system does not do that sparkrack does.

    Exit 0, or 1 with one line: no such unit, a unit that the system cannot run, or a file that is there without
    --force; then nothing is written.
    """
    files = export_files(load(rack), unit, form)
    if output is not None:
        for path in write_export(output, files, force=force):
            click.echo(f"{printable_line(str(path))}: written")
    elif len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CommandError(f"{form} needs {len(files)} files ({names}); name a folder with --output")
    else:
        click.echo(files[0].text, nl=False)

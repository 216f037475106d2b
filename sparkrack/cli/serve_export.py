"""`sparkrack serve export`: a unit of rack.yaml as the files of another system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from core.model import image_lock, load, lock_file
from core.model.declared_secrets import position
from core.model.errors import printable_line, reason
from core.util.atomic_file import write_atomic
from core.util.provenance import revision
from serving.options import select_unit
from sparkrack.cli.options import rack_option
from sparkrack.serving.export.lws import lws_files
from sparkrack.serving.export.ray import ray_files
from sparkrack.serving.export.source import ExportError, ExportFile, ExportSource, export_source

FORMATS: Mapping[str, Callable[[ExportSource], tuple[ExportFile, ...]]] = {
    "lws": lws_files,
    "ray": ray_files,
}


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
    loaded = load(rack)
    declared = select_unit(loaded, unit)
    pin = image_lock.read(lock_file.lock_path(loaded.source)).get(declared.image)
    try:
        files = FORMATS[form](export_source(loaded, declared, pin, revision(loaded.source)))
    except ExportError as error:
        place = position(loaded.source, ("serving", "units", unit, *error.key))
        raise click.ClickException(f"{place}: {printable_line(str(error))}") from None
    if output is not None:
        _write(output, files, force=force)
    elif len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise click.ClickException(f"{form} needs {len(files)} files ({names}); name a folder with --output")
    else:
        click.echo(files[0].text, nl=False)


def _write(folder: Path, files: tuple[ExportFile, ...], *, force: bool) -> None:
    """Write all files, or none where one is there. Raises ClickException."""
    paths = [folder / file.name for file in files]
    there = [printable_line(str(path)) for path in paths if path.exists() or path.is_symlink()]
    if there and not force:
        what = f"{there[0]} exists" if len(there) == 1 else f"{', '.join(there)} exist"
        raise click.ClickException(f"{what}; --force writes over it; nothing was written")
    for path, file in zip(paths, files, strict=True):
        try:
            write_atomic(path, file.text, 0o755 if file.program else 0o644)
        except OSError as error:
            raise click.ClickException(f"{printable_line(str(path))}: cannot be written: {reason(error)}") from None
        click.echo(f"{printable_line(str(path))}: written")

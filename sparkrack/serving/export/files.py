"""A unit of rack.yaml as the files of another system, by its format, and their writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from core.model import Rack, image_lock, lock_file
from core.model.declared_secrets import position
from core.model.errors import printable_line, reason
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from core.util.provenance import revision
from serving.options import select_unit
from sparkrack.serving.export.lws import lws_files
from sparkrack.serving.export.ray import ray_files
from sparkrack.serving.export.source import ExportError, ExportFile, ExportSource, export_source

FORMATS: Mapping[str, Callable[[ExportSource], tuple[ExportFile, ...]]] = {
    "lws": lws_files,
    "ray": ray_files,
}


def export_files(rack: Rack, unit: str, form: str) -> tuple[ExportFile, ...]:
    """Return the files of a unit for another system. `form`: one of FORMATS. Raises CommandError with the line of
    rack.yaml that the other system cannot run.
    """
    declared = select_unit(rack, unit)
    pin = image_lock.read(lock_file.lock_path(rack.source)).get(declared.image)
    try:
        return FORMATS[form](export_source(rack, declared, pin, revision(rack.source)))
    except ExportError as error:
        place = position(rack.source, ("serving", "units", unit, *error.key))
        raise CommandError(f"{place}: {printable_line(str(error))}") from None


def write_export(folder: Path, files: tuple[ExportFile, ...], *, force: bool) -> Iterator[Path]:
    """Write all files, or none where one exists, unless `force`; yield the path of each. Raises CommandError."""
    paths = [folder / file.name for file in files]
    there = [printable_line(str(path)) for path in paths if path.exists() or path.is_symlink()]
    if there and not force:
        what = f"{there[0]} exists" if len(there) == 1 else f"{', '.join(there)} exist"
        raise CommandError(f"{what}; --force writes over it; nothing was written")
    for path, file in zip(paths, files, strict=True):
        try:
            write_atomic(path, file.text, 0o755 if file.program else 0o644)
        except OSError as error:
            raise CommandError(f"{printable_line(str(path))}: cannot be written: {reason(error)}") from None
        yield path

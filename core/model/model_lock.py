"""The models of the lock file beside rack.yaml: the files of each model as they were when it was first fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.model import lock_file
from core.model.errors import truncate
from core.model.models import Model

CONFIGURATIONS = ("config.json", "hf_quant_config.json", "generation_config.json")
"""Files of a model whose contents the lock file keeps: what fits, and what divides, is judged from them."""
OWN_FOLDER = ".sparkrack"
"""Folder in a model's folder on a node: what this program keeps there. No file of a model may be in one."""
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = {"source", "requested", "revision", "files", "configurations"}
_OPTIONAL = {"requested", "chosen"}
_LARGEST = 1 << 50
"""Bytes of a file: more than any disk of a node has."""


@dataclass(frozen=True)
class ModelFile:
    """A file of a model: `path` within the model's folder, `size` in bytes, `sha256` in hexadecimal digits."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ModelRecord:
    """A model as it was fetched. `source` and `revision` (a commit) are None for a folder.

    `configurations`: the text of those files of CONFIGURATIONS that it has, by name. `requested`: the revision in
    rack.yaml for which it was fetched. `chosen`: the patterns there, by which files were chosen; None without any.
    """

    source: str | None
    revision: str | None
    files: tuple[ModelFile, ...]
    configurations: Mapping[str, str]
    requested: str | None = None
    chosen: tuple[str, ...] | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def revision_to_list(model: Model, locked: ModelRecord | None) -> str | None:
    """Return the revision of which the files of a model are listed again; None where the lock file has them.

    Its entry counts when it is of this source, for this revision and for this choice of files. The commit of the lock
    file is listed where only the choice is another one.
    """
    if locked is None or locked.source != model.source:
        return model.revision
    if model.source and model.revision not in (locked.requested, locked.revision):
        pinned = COMMIT.fullmatch(model.revision) is not None
        if pinned or locked.requested is not None:
            return model.revision
    if model.files != locked.chosen:
        return locked.revision or model.revision
    return None


def path_fault(path: object) -> str | None:
    """Return why a path is not accepted as one of a file in a model's folder, None for an accepted one."""
    if not isinstance(path, str) or not path:
        return "is not a path"
    if not path.isprintable() or "\\" in path:
        return "has a backslash or a character that does not print"
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "is not a plain path within the folder of the model"
    if parts[0] == OWN_FOLDER:
        return f"is in {OWN_FOLDER}, which belongs to this program"
    if len(path.encode()) > 1024 or any(len(part.encode()) > 200 for part in parts):
        return "is too long"
    return None


def files_fault(files: Iterable[ModelFile]) -> str | None:
    """Return why a list of files is not accepted, None for an accepted one."""
    paths: set[str] = set()
    folders: set[str] = set()
    for file in files:
        if fault := path_fault(file.path):
            return f"{truncate(file.path)} {fault}"
        if file.path in paths:
            return f"{truncate(file.path)} is there twice"
        if not (type(file.size) is int and 0 <= file.size <= _LARGEST):
            return f"{truncate(file.path)}: {truncate(file.size)} is not a size in bytes"
        if not (isinstance(file.sha256, str) and SHA256.fullmatch(file.sha256)):
            return f"{truncate(file.path)}: {truncate(file.sha256)} is not a sha256 of 64 digits"
        paths.add(file.path)
        parts = file.path.split("/")
        folders |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}
    both = sorted(paths & folders)
    if both:
        return f"{truncate(both[0])} is a file and a folder"
    return None if paths else "it names no file"


def read(path: Path) -> dict[str, ModelRecord]:
    """Read the models of the lock file; empty without a file or without models. Raises ConfigError."""
    return {name: _entry_to_record(path, name, entry) for name, entry in lock_file.read_section(path, "models").items()}


def declared(models: Mapping[str, Model], records: Mapping[str, ModelRecord]) -> dict[str, ModelRecord]:
    """Return the records that are of what a rack file declares; the others are made again before a model is delivered.

    Args:
        models: the models of the rack file by name.
        records: those of the lock file.
    """
    return {
        name: records[name]
        for name, model in models.items()
        if name in records and revision_to_list(model, records[name]) is None
    }


def read_declared(path: Path, models: Mapping[str, Model]) -> dict[str, ModelRecord]:
    """Read the records that are of what a rack file declares; see `declared`. Raises ConfigError."""
    return declared(models, read(path))


def write(path: Path, records: Mapping[str, ModelRecord]) -> None:
    """Replace the models of the lock file. Raises OSError, ConfigError."""
    lock_file.write_section(path, "models", {name: _record_to_entry(record) for name, record in records.items()})


def record(path: Path, declared: Iterable[str], found: Mapping[str, ModelRecord]) -> None:
    """Add what was fetched to the file; models that are no longer declared are dropped. Raises OSError, ConfigError."""
    names = set(declared)
    with lock_file.exclusive(path):
        kept = {**read(path), **found}
        write(path, {name: entry for name, entry in kept.items() if name in names})


def _record_to_entry(record: ModelRecord) -> dict[str, Any]:
    return {
        "source": record.source,
        "requested": record.requested,
        "revision": record.revision,
        **({} if record.chosen is None else {"chosen": list(record.chosen)}),
        "files": {file.path: {"size": file.size, "sha256": file.sha256} for file in record.files},
        "configurations": dict(sorted(record.configurations.items())),
    }


def _entry_to_record(path: Path, name: str, entry: Any) -> ModelRecord:
    where = f"models.{truncate(name)}"
    if not isinstance(entry, dict) or not _KEYS - _OPTIONAL <= set(entry) <= _KEYS | _OPTIONAL:
        raise lock_file.broken(path, f"{where}: is not a mapping of source, revision, files and configurations")
    source, revision, requested = entry["source"], entry["revision"], entry.get("requested")
    if (source is None) != (revision is None) or not all(isinstance(word, str | None) for word in (source, requested)):
        raise lock_file.broken(path, f"{where}: has not both source and revision as text")
    if revision is not None and not (isinstance(revision, str) and COMMIT.fullmatch(revision)):
        raise lock_file.broken(path, f"{where}.revision: {truncate(revision)} is not a commit of 40 digits")
    listed, texts = entry["files"], entry["configurations"]
    if not isinstance(listed, dict) or not all(
        isinstance(file, dict) and set(file) == {"size", "sha256"} for file in listed.values()
    ):
        raise lock_file.broken(path, f"{where}.files: is not a mapping of paths to size and sha256")
    files = tuple(ModelFile(called, file["size"], file["sha256"]) for called, file in listed.items())
    if fault := files_fault(files):
        raise lock_file.broken(path, f"{where}.files: {fault}")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise lock_file.broken(path, f"{where}.configurations: is not a mapping of names to text")
    chosen = entry.get("chosen")
    if chosen is not None and not (isinstance(chosen, list) and all(isinstance(one, str) for one in chosen)):
        raise lock_file.broken(path, f"{where}.chosen: is not a list of patterns")
    return ModelRecord(source, revision, files, texts, requested, None if chosen is None else tuple(chosen))

"""The files of each model of rack.yaml, and those of a node. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model.errors import truncate
from core.model.model_lock import OWN_FOLDER, ModelFile, ModelRecord, files_fault, revision_to_list
from core.model.models import MODEL_STORE, Model

FILES = "models-files"
RECORDS = "models-records"
ROOM = "models-room"
TRANSFERS = "models-transfers"
MARGIN = 1 << 30
"""Bytes of disk space that must remain free beside the models."""
END = "end"
"""Last row of the list of files."""
MAX_LISTING = 4 << 20
"""Bytes of the list of all files in the store of a node: some 40000 files."""
_ENTRY = re.compile(r"([a-zA-Z?]) (\d+) (-?\d+)\.(\d{9})\d* (.+)", re.DOTALL)
_RECORD = re.compile(r"([0-9a-f]{64}) (\d+) ([^\t]+)\t(\d+)")


@dataclass(frozen=True)
class StoredEntry:
    """What is at a path of the store. `kind`: as find has it, f for a file, d for a folder. `changed`: in ns."""

    kind: str
    size: int
    changed: int


@dataclass(frozen=True)
class StoredModel:
    """The folder of a model on a node: `entries` by path, those of this program among them, and `record`: sha256, size
    and time of change of each file whose sha256 was right. `kind`: of the folder itself, None if it is missing.
    """

    kind: str | None
    entries: Mapping[str, StoredEntry]
    record: Mapping[str, tuple[str, int, int]]

    def has(self, file: ModelFile) -> bool:
        """Whether a file is as it was when its sha256 was right."""
        entry = self.entries.get(file.path)
        return (
            entry is not None
            and entry.kind == "f"
            and entry.size == file.size
            and self.record.get(file.path) == (file.sha256, file.size, entry.changed)
        )

    def lacks(self, files: Collection[ModelFile]) -> list[ModelFile]:
        """The files that a node does not have, or that are not known to be right."""
        return [file for file in files if not self.has(file)]

    def is_missing(self, file: ModelFile) -> bool:
        """Whether a file must be fetched for its size alone. Others may be right: only reading them shows it."""
        entry = self.entries.get(file.path)
        return entry is None or entry.kind != "f" or entry.size != file.size

    def dropped(self, files: Collection[ModelFile]) -> list[str]:
        """Those of them that this program has fetched, for another choice or another revision."""
        return [path for path in self.undeclared(files) if path in self.record]

    @property
    def parts(self) -> int:
        """Bytes of files that are not complete."""
        return sum(
            entry.size
            for path, entry in self.entries.items()
            if entry.kind == "f" and path.startswith(f"{OWN_FOLDER}/parts/")
        )

    def undeclared(self, files: Collection[ModelFile]) -> list[str]:
        """The files in the folder that are not files of the model."""
        known = {file.path for file in files}
        return sorted(
            path
            for path, entry in self.entries.items()
            if entry.kind != "d" and path not in known and path.split("/")[0] != OWN_FOLDER
        )

    def in_the_way(self, files: Collection[ModelFile]) -> list[str]:
        """Why files cannot be put in their places."""
        if self.kind not in (None, "d"):
            return ["is a link or a file, and must be a folder"]
        folders = {
            "/".join(parts[:depth])
            for file in files
            for parts in [file.path.split("/")]
            for depth in range(1, len(parts))
        }
        folders |= {OWN_FOLDER, f"{OWN_FOLDER}/parts"}
        lines = []
        for path, entry in sorted(self.entries.items()):
            if path in folders and entry.kind != "d":
                lines.append(f"{truncate(path)} is a link or a file, and must be a folder")
        lines += [
            f"{truncate(file.path)} is not a regular file"
            for file in files
            if (found := self.entries.get(file.path)) and found.kind != "f"
        ]
        return lines


NOTHING = StoredModel(None, {}, {})


@dataclass(frozen=True)
class StoredModels:
    """All that a node has below /srv/models, by the first part of the path."""

    models: Mapping[str, StoredModel]

    def of(self, name: str) -> StoredModel:
        """The folder of a model."""
        return self.models.get(name, NOTHING)


def store(listing: bytes, records: str) -> StoredModels:
    """Parse the store of a node: the output of find, and its records. Raises ValueError."""
    if len(listing) > MAX_LISTING:
        raise ValueError(
            f"{FILES}: {MODEL_STORE} has too many files to list; move away what is not a model of this rack"
        )
    entries: dict[str, dict[str, StoredEntry]] = {}
    kinds: dict[str, str] = {}
    rows = listing.split(b"\0")
    if rows[-2:] != [END.encode(), b""]:
        raise ValueError(f"{FILES}: the list of files ends too early; check the disk of {MODEL_STORE}")
    for row in rows[:-2]:
        found = _ENTRY.fullmatch(row.decode(errors="backslashreplace"))
        if found is None:
            raise ValueError(f"{FILES}: unexpected probe output {truncate(row.decode(errors='backslashreplace'))}")
        name, _, path = found[5].partition("/")
        if path:
            changed = int(found[3]) * 10**9 + int(found[4])
            entries.setdefault(name, {})[path] = StoredEntry(found[1], int(found[2]), changed)
        else:
            kinds[name] = found[1]
    recorded = _parse_records(records)
    return StoredModels(
        {name: StoredModel(kind, entries.get(name, {}), recorded.get(name, {})) for name, kind in kinds.items()}
    )


def _parse_records(text: str) -> dict[str, dict[str, tuple[str, int, int]]]:
    """The records of a node, by model. A line that is not one counts as missing: its file is read again."""
    found: dict[str, dict[str, tuple[str, int, int]]] = {}
    current: dict[str, tuple[str, int, int]] = {}
    for line in text.split("\n"):
        if line.startswith("= "):
            current = found.setdefault(line.removeprefix("= "), {})
        elif row := _RECORD.fullmatch(line):
            current[row[3]] = (row[1], int(row[2]), int(row[4]))
    return found


def free_space(text: str) -> int:
    """Free bytes where a node keeps models. Raises ValueError."""
    word = text.strip()
    if not (word.isascii() and word.isdigit()):
        raise ValueError(f"{ROOM}: unexpected probe output {truncate(text)}")
    return int(word)


@dataclass(frozen=True)
class ModelGoal:
    """A model for the whole rack. `record` None: its files are not known yet. `revision`: of what they are listed then;
    the commit of the lock file where only the choice of files is another one.
    """

    model: Model
    record: ModelRecord | None
    revision: str = ""

    @cached_property
    def files(self) -> tuple[ModelFile, ...]:
        """Its files, as far as they are known."""
        return self.record.files if self.record else ()

    @property
    def origin(self) -> str:
        """Where it comes from outside of the rack."""
        return self.model.source or str(self.model.path)


def goal(model: Model, locked: ModelRecord | None) -> ModelGoal:
    """Determine a model by the lock file, None without an entry of it."""
    revision = revision_to_list(model, locked)
    return ModelGoal(model, locked) if revision is None else ModelGoal(model, None, revision)


def need(stored: StoredModel, files: Collection[ModelFile]) -> int:
    """Bytes that must be free for the missing files of a model, besides MARGIN."""
    missing = sum(file.size for file in stored.lacks(files) if stored.is_missing(file))
    return max(missing - stored.parts, 0)


def record_of(model: Model, revision: str | None, files: object, configurations: object) -> ModelRecord:
    """Make the record of a model from what was listed. Raises ValueError for a list that is not accepted."""
    if not isinstance(files, list) or not isinstance(configurations, dict):
        raise ValueError("no list of files")  # noqa: TRY004 - of an answer, not of an argument
    rows = []
    for row in files:
        match row:
            case [str(path), int(size), str(sha256)]:
                rows.append(ModelFile(path, size, sha256))
            case _:
                raise ValueError("a row of the list is not a path, a size and a sha256")
    if fault := files_fault(rows):
        raise ValueError(fault)
    return ModelRecord(
        model.source,
        revision,
        tuple(rows),
        {str(name): str(text) for name, text in configurations.items()},
        model.revision if model.source else None,
        model.files,
    )


def amount(size: float) -> str:
    """Bytes as text: in kB below 1 MB, in GB from 10 GB on, else in MB."""
    if size < 10**6:
        return f"{size / 10**3:.0f} kB"
    return f"{size / 10**9:.1f} GB" if size >= 10**10 else f"{size / 10**6:.0f} MB"


def time_left(seconds: float) -> str:
    """Seconds as text: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"

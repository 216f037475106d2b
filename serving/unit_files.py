"""The files beside rack.yaml that a unit mounts into its container: what is refused of them, and their content."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.model.errors import RuleViolation, counted, reason, truncate
from serving.container_paths import INSIDE_CACHE, INSIDE_MODELS
from serving.options import ServedUnit

MOST_BYTES = 64 << 20
"""Bytes of all files of a unit: they are read by each run, and sent to each node by one command a file."""
MOST_FILES = 200
_NAME = re.compile(r"[A-Za-z0-9._+@=~-]{1,200}")
"""A name of a file or a folder that shell texts and docker take as it is."""
_TAKEN = {
    INSIDE_MODELS: "the models of the unit are",
    INSIDE_CACHE: "the compile cache of the unit is",
    "/run/sparkrack": "the secrets of the unit are",
    "/tmp/flashinfer-autotune": "each rank keeps what it has tuned",  # noqa: S108 - in a container of its own
    "/etc/sparkrack": "sparkrack has its own files",
    **dict.fromkeys(("/proc", "/sys", "/dev"), "the kernel shows its own files"),
}
"""Folders of a container in which nothing may be mounted, and why."""


@dataclass(frozen=True)
class MountedFile:
    """A file of a mount: its content, and whether it is a program."""

    content: bytes
    program: bool


@dataclass(frozen=True)
class UnitMount:
    """What stands at one path of the container. `name`: of the file that is mounted, empty for a folder; `files`: by
    the path in the folder. `digest`: of all of it, 16 hexadecimal digits."""

    inside: str
    name: str
    files: Mapping[str, MountedFile]
    digest: str


def faults(unit: ServedUnit, secrets: Collection[Path] = ()) -> Iterator[RuleViolation]:
    """Yield what is wrong with the files of a unit. Their content is not read.

    Args:
        unit: the unit.
        secrets: the files that hold secrets, in full, as far as rack.yaml refers to them.
    """
    size = count = 0
    places = sorted(unit.files)
    for inside, source in unit.files.items():
        if taken := _describe_collision(inside, [place for place in places if place != inside]):
            yield RuleViolation(("files", inside), f"{inside} {taken}", "write another path, like /workspace/fix")
        try:
            listed = list(_list_source_files(source))
        except ValueError as error:
            what, _, right = str(error).rpartition("; ")
            yield RuleViolation(("files", inside), what, right)
            continue
        for relative, _ in listed:
            if (source / relative if source.is_dir() else source) in secrets:
                what = f"{truncate(relative)} is a secret that rack.yaml refers to, and would be on each node"
                yield RuleViolation(("files", inside), what, "keep it in another folder")
        count += len(listed)
        size += sum(state.st_size for _, state in listed)
    if count > MOST_FILES:
        what = f"have {counted(count, 'file')}, at most {MOST_FILES} are sent to each node"
        yield RuleViolation(("files",), what, "name a folder with less, or build an image that has them")
    elif size > MOST_BYTES:
        what = f"have {size / 2**20:.0f} MiB, at most {MOST_BYTES >> 20} are sent to each node"
        yield RuleViolation(("files",), what, "leave out what is not needed, or build an image that has it")


def _describe_collision(inside: str, others: list[str]) -> str:
    """Return why nothing can be mounted at a path of the container, empty where it can."""
    for place, why in _TAKEN.items():
        if _paths_overlap(inside, place):
            return f"would hide {place}, or lie in it: {why} there"
    other = next((other for other in others if _paths_overlap(inside, other)), "")
    return f"and {other} are one inside the other, and the outer one is read-only" if other else ""


def _paths_overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _list_source_files(source: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path of each file of a source, from its folder on, and its state. Raises ValueError, what and right."""
    try:
        if source.resolve(strict=True) != source:
            raise ValueError(f"{truncate(source.name)} is a symbolic link, or behind one; copy the file to its place")
        found = source.lstat()
        if stat.S_ISREG(found.st_mode):
            _check_name(source.name, source.name)
            yield source.name, found
            return
        if not stat.S_ISDIR(found.st_mode):
            raise ValueError(f"{truncate(source.name)} is neither a file nor a folder; name one of them")
        empty = True
        for top, folders, names in os.walk(source, onerror=_raise_error):
            folders.sort()
            for name in sorted([*folders, *names]):
                path = Path(top) / name
                shown, state = truncate(str(path.relative_to(source.parent))), path.lstat()
                _check_name(name, shown)
                if stat.S_ISLNK(state.st_mode):
                    raise ValueError(f"{shown} is a symbolic link; replace it by the file itself")
                if stat.S_ISREG(state.st_mode):
                    empty = False
                    yield str(path.relative_to(source)), state
                elif not stat.S_ISDIR(state.st_mode):
                    raise ValueError(f"{shown} is neither a file nor a folder; remove it")
        if empty:
            raise ValueError(f"{truncate(source.name)} has no files; add them, or remove the entry")
    except (OSError, RuntimeError) as error:
        what = reason(error) if isinstance(error, OSError) else "is a symbolic link to itself"
        raise ValueError(f"cannot be read: {what}; write the path of a file or a folder beside rack.yaml") from None


def _check_name(name: str, shown: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown} has a name that is not sent to a node; use letters, digits and . _ + @ = ~ - only, at most 200"
        )


def _raise_error(error: OSError) -> None:
    raise error


def mounts(unit: ServedUnit) -> tuple[UnitMount, ...]:
    """Return what is mounted into the container of a unit, in the order of rack.yaml. Raises ValueError."""
    found = []
    for inside, source in unit.files.items():
        files: dict[str, MountedFile] = {}
        for relative, state in _list_source_files(source):
            path = source / relative if source.is_dir() else source
            try:
                content = _read_content(path, state.st_size, state.st_mtime_ns, state.st_ino)
            except OSError as error:
                raise ValueError(f"cannot be read: {reason(error)}; make it readable") from None
            files[relative] = MountedFile(content, bool(state.st_mode & 0o111))
        made = hashlib.sha256()
        for relative, file in sorted(files.items()):
            made.update(f"{relative} {file.program:d} {hashlib.sha256(file.content).hexdigest()}\n".encode())
        name = "" if source.is_dir() else source.name
        found.append(UnitMount(inside, name, files, made.hexdigest()[:16]))
    return tuple(found)


@lru_cache(maxsize=4 * MOST_FILES)
def _read_content(path: Path, size: int, changed: int, number: int) -> bytes:  # noqa: ARG001 - they tell two contents apart
    """Return the content of a file: a run asks for it once for each node and each of its files."""
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)

"""Read a rack file, validate it as a whole, and return the typed rack or every error at once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.model import error_messages, image_lock, lock_file, model_lock, validation, yaml_reader
from core.model.errors import ConfigError, ConfigProblem, RuleViolation, truncate
from core.model.errors import Path as Place
from core.model.partial_rack import partial_from_invalid, partial_from_rack
from core.model.role import roles
from core.model.schema import Rack, rack_model
from core.util import regular_file

DEFAULT = Path("rack.yaml")
"""The rack file of the working folder."""
IN_CLONE = Path("group_data/rack.yaml")
"""The rack file of a clone: beside what pyinfra reads of a group of its inventory."""
_LARGEST = 1024 * 1024
_WHERE = "write one with `sparkrack init`, or name another with RACK=path"


def rack_path() -> Path:
    """The rack file in use: what the environment variable RACK names, else `default_path`. Raises ConfigError."""
    named = os.environ.get("RACK")
    return Path(named) if named else default_path()


def default_path() -> Path:
    """The rack file of a command that names none: rack.yaml of the working folder, else group_data/rack.yaml there.

    Raises ConfigError when both exist and differ: a guess could change another rack than the one that is meant.
    """
    if not _path_exists(IN_CLONE):
        return DEFAULT
    if not _path_exists(DEFAULT):
        return IN_CLONE
    if _read_content(DEFAULT) != _read_content(IN_CLONE):
        right = f"name one of them: RACK={DEFAULT} or RACK={IN_CLONE}"
        raise ConfigError([ConfigProblem(str(DEFAULT), None, "", f"differs from {IN_CLONE}", right)])
    return DEFAULT


def is_default(path: Path) -> bool:
    """Whether a command that names no rack file uses this one."""
    try:
        return default_path().absolute() == path.absolute()
    except ConfigError:
        return False


def new_path() -> Path:
    """Where a command that names no file writes a new one: what RACK names, else rack.yaml of the working folder.

    Raises ConfigError where group_data/rack.yaml exists: beside a new rack.yaml each command would have to name one.
    """
    named = os.environ.get("RACK")
    if not named and _path_exists(IN_CLONE):
        right = f"name the file to write: --out {IN_CLONE} or --out {DEFAULT}"
        raise ConfigError([ConfigProblem(str(IN_CLONE), None, "", "is a rack file already", right)])
    return Path(named) if named else DEFAULT


def _path_exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _read_content(path: Path) -> bytes | Path:
    """What is in a file. Without it the path stands for a file that cannot be read, which equals no other."""
    try:
        return regular_file.read_bytes(path, _LARGEST)
    except OSError:
        return path


_at_hand: Rack | None = None


def current() -> Rack:
    """The rack that a command of this process has loaded, else the one in the file in use. Raises ConfigError."""
    return _at_hand or load(rack_path())


@contextmanager
def handed(rack: Rack) -> Iterator[None]:
    """Inside it `current` gives this rack, so that a file that is edited while a command runs is not read again.

    pyinfra runs inventory.py as a file and can hand nothing to it.
    """
    global _at_hand
    before, _at_hand = _at_hand, rack
    try:
        yield
    finally:
        _at_hand = before


def load(path: str | os.PathLike[str]) -> Rack:
    """Load the rack in the file at `path`; no other file is read.

    Raises ConfigError with every problem, each with its line.
    """
    name = os.fspath(path)
    return load_text(_read_text(name), name)


def load_text(text: str, name: str) -> Rack:
    """Load the rack in a text that is, or is to be, in the file `name`. Raises ConfigError like `load`."""
    document = yaml_reader.parse(text)
    if document.data is None and not document.problems:
        right = "write at least nodes, like nodes: {spark1: {address: 10.77.0.11}}"
        raise ConfigError([ConfigProblem(name, 1, "", "the file is empty", right)])
    found = [*document.problems]
    rack: Rack | None = None
    locked: tuple[ConfigProblem, ...] = ()
    if document.whole:
        records, locked = _read_lock_records(document, Path(name).absolute())
        rack, problems = _validate_document(
            document, Path(name).absolute(), {problem.path for _, problem in found}, records
        )
        found += [(document.line(problem.path), problem) for problem in problems]
    if found or locked or rack is None:
        raise ConfigError([*_problems_at_lines(name, found), *locked])
    # Computed once, here: pyinfra copies a host's data at every access, and a copy keeps the computed values.
    _ = rack.addresses_by_node, rack.topology
    return rack


@dataclass(frozen=True)
class _Recorded:
    """What the lock file beside the rack file has for the rules of roles: `roles` by key, and models and images."""

    records: Mapping[str, model_lock.ModelRecord] = field(default_factory=dict)
    image_ids: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Any] = field(default_factory=dict)


def _read_lock_records(document: yaml_reader.YamlDocument, path: Path) -> tuple[_Recorded, tuple[ConfigProblem, ...]]:
    """Return what the lock file has, and its problems; it is not read for a rack file without a section that needs
    it."""
    data = document.data if isinstance(document.data, dict) else {}
    readers = {role.key: role.read_lock for role in roles() if role.read_lock and role.key in data}
    if not readers:
        return _Recorded(), ()
    lock = lock_file.lock_path(path)
    try:
        known = {key: read(lock) for key, read in readers.items()}
        return _Recorded(model_lock.read(lock), image_lock.known_ids(lock), known), ()
    except ConfigError as error:
        return _Recorded(), error.faults


def _problems_at_lines(name: str, found: Iterable[tuple[int, RuleViolation]]) -> Iterator[ConfigProblem]:
    reported = set()
    for line, problem in sorted(found, key=lambda pair: pair[0]):
        fault = problem.at(name, line)
        if fault not in reported:
            reported.add(fault)
            yield fault


def _read_text(name: str) -> str:
    try:
        raw = regular_file.read_bytes(name, _LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        # It is read once for each look, and pyinfra runs in another folder: what can be read only once is not a rack
        # file.
        right = "write the rack to a file and name that" if isinstance(error, regular_file.NotRegularError) else _WHERE
        raise ConfigError([ConfigProblem(name, None, "", f"cannot be read: {reason}", right)]) from None
    if len(raw) > _LARGEST:
        raise ConfigError(
            [ConfigProblem(name, None, "", f"is larger than {_LARGEST} bytes, which no rack file is", _WHERE)]
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([ConfigProblem(name, line, "", "is not UTF-8 text", "save the file as UTF-8")]) from None


def _validate_document(
    document: yaml_reader.YamlDocument, path: Path, faulty: set[Place], recorded: _Recorded
) -> tuple[Rack | None, list[RuleViolation]]:
    """The rack if its sections are sound, and every problem in and between them but those at `faulty`."""
    if not isinstance(document.data, dict):
        return None, [
            RuleViolation((), "the file is not a mapping", "begin with a line nodes: and write the nodes below it")
        ]
    data, problems = _with_names(document)
    complete = not (problems or faulty)
    context = {"folder": path.parent}
    rack: Rack | None = None
    try:
        rack = rack_model().model_validate({**data, "source": path}, context=context)
    except ValidationError as error:
        problems += [
            problem
            for problem in error_messages.problems(error, rack_model(), document.spelling)
            if problem.path not in faulty
        ]
        partial = partial_from_invalid(data, context, complete)
    else:
        partial = partial_from_rack(rack, complete)
    problems += validation.check(
        dataclasses.replace(
            partial,
            records=model_lock.declared(partial.models, recorded.records),
            image_ids=recorded.image_ids,
            locked=recorded.roles,
        )
    )
    return rack, problems


def _with_names(document: yaml_reader.YamlDocument) -> tuple[dict[str, Any], list[RuleViolation]]:
    """Return the data, with the key of each node, switch, cage, model and unit added as its name, and the problems of
    these names.
    """
    problems: list[RuleViolation] = []

    def entries(section: Any, place: Place) -> Any:
        if not isinstance(section, dict):
            return section
        named: dict[str, Any] = {}
        for key, entry in section.items():
            if not isinstance(key, str):
                word = truncate(key)
                problems.append(
                    RuleViolation((*place, key), "the name is not a text to YAML", f'write it in quotes: "{word}"')
                )
                continue
            if isinstance(entry, dict):
                if "name" in entry:
                    problems.append(
                        RuleViolation((*place, key, "name"), "unknown key", "remove it, the name stands above")
                    )
                entry = {**entry, "name": key}
                if place == ("switches",) and "cages" in entry:
                    entry["cages"] = entries(entry.get("cages"), (*place, key, "cages"))
            named[key] = entry
        return named

    data = dict(document.data)
    if "source" in data:
        problems.append(RuleViolation(("source",), "unknown key", "remove it"))
    for section in ("nodes", "switches", "models"):
        if section in data:
            data[section] = entries(data[section], (section,))
    for role in roles():
        for key in role.named:
            options = data.get(role.key)
            if isinstance(options, dict) and key in options:
                data[role.key] = {**options, key: entries(options[key], (role.key, key))}
    return data, problems

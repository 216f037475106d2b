"""Read a rack file, judge it as a whole, and give the typed rack or every fault at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sparkrack.fleet import regular, rules, source, wording
from sparkrack.fleet.draft import drafted, salvaged
from sparkrack.fleet.errors import Fault, Problem, RackError, shown
from sparkrack.fleet.errors import Path as Place
from sparkrack.fleet.types import Rack

DEFAULT = Path("group_data/rack.yaml")
_LARGEST = 1024 * 1024
_WHERE = "set RACK=path or write group_data/rack.yaml"


def rack_path() -> Path:
    """The rack file in use: what the environment variable RACK names, else group_data/rack.yaml."""
    return Path(os.environ.get("RACK") or DEFAULT)


_at_hand: Rack | None = None


def current() -> Rack:
    """The rack that a command of this process has loaded, else the one in the file in use. Raises RackError."""
    return _at_hand or load(rack_path())


@contextmanager
def handed(rack: Rack) -> Iterator[None]:
    """Meanwhile `current` gives this rack, so that a file that is edited while a command runs is not read again.

    pyinfra runs inventory.py as a file and can hand nothing to it.
    """
    global _at_hand
    before, _at_hand = _at_hand, rack
    try:
        yield
    finally:
        _at_hand = before


def load(path: str | os.PathLike[str]) -> Rack:
    """The rack in the file at `path`; nothing but the file is read.

    Raises RackError with every fault found, each with the line it stands on.
    """
    name = os.fspath(path)
    document = source.parse(_text(name))
    if document.data is None and not document.problems:
        raise RackError(
            [Fault(name, 1, "", "the file is empty", "write at least the keys rack, access, nodes and fabric")]
        )
    found = list(document.problems)
    rack: Rack | None = None
    if document.whole:
        rack, problems = _judge(document, Path(name).absolute(), {problem.path for _, problem in found})
        found += [(document.line(problem.path), problem) for problem in problems]
    if found or rack is None:
        raise RackError(_faults(name, found))
    # Found out once, here: pyinfra copies what a host's data hold at every access, and a copy keeps what was known.
    _ = rack.addresses_by_node, rack.topology
    return rack


def _faults(name: str, found: Iterable[tuple[int, Problem]]) -> Iterator[Fault]:
    told = set()
    for line, problem in sorted(found, key=lambda pair: pair[0]):
        fault = problem.at(name, line)
        if fault not in told:
            told.add(fault)
            yield fault


def _text(name: str) -> str:
    try:
        raw = regular.read_bytes(name, _LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        # It is read once for each look, and pyinfra runs in another folder: what can be read only once is no rack file.
        right = "write the rack to a file and name that" if isinstance(error, regular.NotRegularError) else _WHERE
        raise RackError([Fault(name, None, "", f"cannot be read: {reason}", right)]) from None
    if len(raw) > _LARGEST:
        raise RackError([Fault(name, None, "", f"is larger than {_LARGEST} bytes, which no rack file is", _WHERE)])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RackError([Fault(name, line, "", "is not UTF-8 text", "save the file as UTF-8")]) from None


def _judge(document: source.Document, path: Path, faulty: set[Place]) -> tuple[Rack | None, list[Problem]]:
    """The rack if its sections are sound, and every problem in and between them but those at `faulty`."""
    if not isinstance(document.data, dict):
        return None, [Problem((), "the file is not a mapping", "begin with a line like rack: spark8")]
    data, problems = _named(document)
    complete = not (problems or faulty)
    context = {"folder": path.parent}
    rack: Rack | None = None
    try:
        rack = Rack.model_validate({**data, "source": path}, context=context)
    except ValidationError as error:
        problems += [
            problem for problem in wording.problems(error, Rack, document.spelling) if problem.path not in faulty
        ]
        draft = salvaged(data, context, complete)
    else:
        draft = drafted(rack, complete)
    problems += rules.check(draft)
    return rack, problems


def _named(document: source.Document) -> tuple[dict[str, Any], list[Problem]]:
    """The data, each node, switch and cage told the name it is filed under, and what is wrong with names."""
    problems: list[Problem] = []

    def entries(section: Any, place: Place) -> Any:
        if not isinstance(section, dict):
            return section
        named: dict[str, Any] = {}
        for key, entry in section.items():
            if not isinstance(key, str):
                word = shown(key)
                problems.append(
                    Problem((*place, key), "the name is not a text to YAML", f'write it in quotes: "{word}"')
                )
                continue
            if isinstance(entry, dict):
                if "name" in entry:
                    problems.append(Problem((*place, key, "name"), "unknown key", "remove it, the name stands above"))
                entry = {**entry, "name": key}
                if place == ("switches",) and "cages" in entry:
                    entry["cages"] = entries(entry.get("cages"), (*place, key, "cages"))
            named[key] = entry
        return named

    data = dict(document.data)
    if "source" in data:
        problems.append(Problem(("source",), "unknown key", "remove it"))
    for section in ("nodes", "switches"):
        if section in data:
            data[section] = entries(data[section], (section,))
    return data, problems

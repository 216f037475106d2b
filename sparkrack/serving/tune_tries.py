"""What `sparkrack serve tune` tries: one value of one key of a unit at a time, and what `check` says of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.model import ConfigError, Rack, yaml_reader
from core.model.errors import Path as Place
from core.model.errors import printable_line
from core.model.loader import load_text
from core.model.yaml_editor import FileSnapshot, Scalar
from core.util.command_error import CommandError
from serving.options import ServedUnit, select_unit

MAPPINGS = ("args", "env")
"""Keys of a unit below which each name is an option or a variable; a dot is a part of the name."""
KEYS = (
    *("context", "sequences", "memory", "kv", "parallel.tensor", "parallel.pipeline", "parallel.expert"),
    *("shm", "overhead", "image", "version"),
)
"""Further keys that decide how fast a unit is. Those that decide how it is judged (`probe`, `kind`, `fit`), or where it
runs, are not tuned."""


@dataclass(frozen=True)
class Try:
    """One value to try. `key`: below the unit in rack.yaml, with dots."""

    key: str
    value: Scalar

    def __str__(self) -> str:
        return f"{self.key}={shown_value(self.value)}"

    def place(self, unit: str) -> Place:
        """Return where the value stands in rack.yaml."""
        first, _, rest = self.key.partition(".")
        return ("serving", "units", unit, first, *([rest] if rest else []))


@dataclass(frozen=True)
class Candidate:
    """The rack file with one value changed. `refused`: why it is not tried, a line; empty if it can be."""

    tried: Try
    text: str = ""
    refused: str = ""


def shown_value(value: object) -> str:
    """Return a value as YAML has it, on one line."""
    return str(value).lower() if isinstance(value, bool) else printable_line(str(value))


def parse_tries(words: Iterable[str]) -> tuple[Try, ...]:
    """Return the values of `KEY=V1,V2`, in their order. Raises CommandError for a key that is not tuned, and for values
    that are not scalars of YAML.
    """
    found: list[Try] = []
    for word in words:
        key, equals, values = word.partition("=")
        first, _, rest = key.partition(".")
        if not equals or not values:
            raise CommandError(f"--try {printable_line(word)}: write KEY=VALUE,VALUE, like memory=0.80,0.85")
        if key not in KEYS and not (first in MAPPINGS and rest):
            known = ", ".join((*(f"{name}.NAME" for name in MAPPINGS), *KEYS))
            raise CommandError(f"--try {printable_line(key)}: is not a key that is tuned; write one of {known}")
        document = yaml_reader.parse(f"[{values}]")
        scalars = isinstance(document.data, list) and all(isinstance(one, Scalar) for one in document.data)
        if document.problems or not document.whole or not scalars:
            raise CommandError(
                f"--try {printable_line(word)}: its values are not scalars of YAML; quote one with a comma"
            )
        # A variable is a text, also one that looks like a number.
        texts = (document.spelling.get((number,)) for number in range(len(document.data)))
        values_found = [
            (spelled if spelled is not None else str(value)) if first == "env" else value
            for value, spelled in zip(document.data, texts, strict=True)
        ]
        found += [Try(key, value) for value in values_found]
    if len({(one.key, shown_value(one.value)) for one in found}) < len(found):
        raise CommandError("--try: a value is named twice")
    return tuple(found)


def declared_value(unit: ServedUnit, tried: Try) -> Any:
    """Return what rack.yaml has, or applies by default, in the place of a value to try; None for nothing."""
    first, _, rest = tried.key.partition(".")
    value = getattr(unit, first)
    if not rest:
        return value
    return value.get(rest) if first in MAPPINGS else getattr(value, rest)


def candidate(snapshot: FileSnapshot, rack: Rack, name: str, tried: Try) -> Candidate:
    """Return the rack file with one value changed, or why `check` refuses it.

    Args:
        snapshot: the rack file as it is.
        rack: what it declares.
        name: the unit.
        tried: the value.
    """
    before = declared_value(select_unit(rack, name), tried)
    if before == tried.value and isinstance(before, bool) == isinstance(tried.value, bool):
        return Candidate(tried, refused="it is what rack.yaml declares")
    try:
        text = snapshot.with_value(tried.place(name), tried.value).data.decode()
        load_text(text, str(snapshot.path))
    except ConfigError as error:
        return Candidate(tried, refused=printable_line("; ".join(map(str, error.faults))))
    return Candidate(tried, text)

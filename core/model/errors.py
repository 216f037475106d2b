"""Errors in a rack file: problems that print as one line each, and the exception that carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[object, ...]
"""Position of a value in the file: mapping keys and list indices from the top."""

_SECRETS = ("password", "authentication", "encryption", "token")
_BESIDE = ("reader", "snmp")
"""Sections that are little more than a secret: a single value written there is most likely that secret."""
_REFERENCES = ("env", "file", "command")
_API_KEY = ("api", "key")
_FREE = ("args", "env")
"""Sections whose keys are the user's own: none of them is the key of a secret."""
NAMED = ("nodes", "switches", "cages", "models", "units")
"""Sections whose entries are filed under their names."""
_LONGEST = 60
MAX_SHOWN_FAULTS = 50

NO_SUDO = "sudo wants a password; access.user needs sudo without one"
"""The reason why a node is unknown that `sparkrack bootstrap nodes` removes."""


def printable_line(text: str) -> str:
    """`text` with everything that does not print (line breaks, terminal controls) written as an escape."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def printable(text: str) -> str:
    """Text of a machine as it may reach a terminal: nothing in it moves the cursor, and tabs stay."""
    return "\t".join(map(printable_line, text.split("\t")))


def truncate(value: object) -> str:
    """`value` as it may stand in a message: one line, printable, at most 60 characters of it."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return printable_line(text) or '""'


def counted(number: int | None, one: str, many: str = "") -> str:
    """`1 node`, `2 nodes`, `1 switch`, `2 switches`; `many` where an s is not enough."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def reason(fault: OSError) -> str:
    """Return the system's error message, in one line, with the file if it names one."""
    text = fault.strerror or str(fault) or type(fault).__name__
    return printable_line(f"{fault.filename}: {text}" if fault.filename else text)


def holds_secret(path: Path) -> bool:
    """Return whether the value at `path` may be a secret and must not be repeated in a message."""
    return _secret_at(path) >= 0 or (path[:1] == ("switches",) and len(path) == 3 and path[2] in _BESIDE)


def format_path(path: Path) -> str:
    """`("nodes", "spark4", "ports", 1)` as `nodes.spark4.ports.1`.

    Below `password` only the kind of reference shows: any other key there may be a secret in the wrong place.
    """
    cut = _secret_at(path) + 1
    if cut:
        path = path[: cut + 1] if path[cut : cut + 1] and path[cut] in _REFERENCES else path[:cut]
    return ".".join(truncate(part) for part in path)


def _secret_at(path: Path) -> int:
    """Return the index in `path` of the key of a secret, -1 for none; a host or model of that name is not one."""
    own = next((at for at, key in enumerate(path) if at > 2 and key in _FREE), len(path))
    for at, key in enumerate(path[:own]):
        if str(key) in _SECRETS and not (at and path[at - 1] in NAMED):
            return at
        if path[at - 1 : at + 1] == _API_KEY:
            return at
    return -1


@dataclass(frozen=True)
class ConfigProblem:
    """One problem in a rack file; `str()` is one line. `line` None means the file as a whole."""

    file: str
    line: int | None
    path: str
    what: str
    right: str

    def __str__(self) -> str:
        place = printable_line(self.file) + (f":{self.line}" if self.line is not None else "")
        return ": ".join(part for part in (place, self.path, f"{self.what}; {self.right}") if part)


@dataclass(frozen=True)
class RuleViolation:
    """A broken rule, not yet tied to a line: where, what is wrong, what would be right."""

    path: Path
    what: str
    right: str

    def at(self, file: str, line: int) -> ConfigProblem:
        """Return this problem with a line of a file."""
        return ConfigProblem(file, line, format_path(self.path), self.what, self.right)


class ConfigError(Exception):
    """The rack file cannot be used. `faults` holds every problem; `str()` gives a line for each of the first 50."""

    def __init__(self, faults: Iterable[ConfigProblem]) -> None:
        self.faults: tuple[ConfigProblem, ...] = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:MAX_SHOWN_FAULTS]]
        if len(self.faults) > MAX_SHOWN_FAULTS:
            lines.append(f"{printable_line(self.faults[0].file)}: and {len(self.faults) - MAX_SHOWN_FAULTS} more")
        return "\n".join(lines)

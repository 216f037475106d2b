"""What is wrong in a rack file: faults that each print as one line, and the error that carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[object, ...]
"""Where a value stands in the file: mapping keys and list positions from the top."""

_SECRETS = ("password", "authentication", "encryption")
_BESIDE = ("reader", "snmp")
"""Sections that are little more than a secret: who writes one value there most likely wrote that."""
_REFERENCES = ("env", "file", "command")
_LONGEST = 60
MOST = 50


def one_line(text: str) -> str:
    """`text` with everything that does not print (line breaks, terminal controls) written as an escape."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def printable(text: str) -> str:
    """Text of a machine as it may reach a terminal: nothing in it moves the cursor, and tabs stay."""
    return "\t".join(map(one_line, text.split("\t")))


def shown(value: object) -> str:
    """`value` as it may stand in a message: one line, printable, at most 60 characters of it."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return one_line(text) or '""'


def counted(number: int | None, one: str, many: str = "") -> str:
    """`1 node`, `2 nodes`, `1 switch`, `2 switches`; `many` where an s is not enough."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def reason(fault: OSError) -> str:
    """What the system says, in one line, with the file if it names one."""
    text = fault.strerror or str(fault) or type(fault).__name__
    return one_line(f"{fault.filename}: {text}" if fault.filename else text)


def holds_secret(path: Path) -> bool:
    """Whether the value at `path` may be a secret and must not be repeated in a message."""
    return _secret_at(path) >= 0 or (path[:1] == ("switches",) and len(path) == 3 and path[2] in _BESIDE)


def dotted(path: Path) -> str:
    """`("nodes", "spark4", "ports", 1)` as `nodes.spark4.ports.1`.

    Below `password` only the kind of reference shows: any other key there may be a secret in the wrong place.
    """
    cut = _secret_at(path) + 1
    if cut:
        path = path[: cut + 1] if path[cut : cut + 1] and path[cut] in _REFERENCES else path[:cut]
    return ".".join(shown(part) for part in path)


def _secret_at(path: Path) -> int:
    """Where in `path` the key of a secret stands, -1 for nowhere; a machine of that name is no secret."""
    named = bool(path) and path[0] in ("nodes", "switches")
    return next((at for at, key in enumerate(path) if str(key) in _SECRETS and not (named and at == 1)), -1)


@dataclass(frozen=True)
class Fault:
    """One thing wrong in a rack file; `str()` is one line. `line` None means the file as a whole."""

    file: str
    line: int | None
    path: str
    what: str
    right: str

    def __str__(self) -> str:
        place = one_line(self.file) + (f":{self.line}" if self.line is not None else "")
        return ": ".join(part for part in (place, self.path, f"{self.what}; {self.right}") if part)


@dataclass(frozen=True)
class Problem:
    """A broken rule, not yet tied to a line: where, what is wrong, what would be right."""

    path: Path
    what: str
    right: str

    def at(self, file: str, line: int) -> Fault:
        """This problem as a fault on a line of a file."""
        return Fault(file, line, dotted(self.path), self.what, self.right)


class RackError(Exception):
    """The rack file cannot be used. `faults` holds every fault found; `str()` gives a line for each of the first 50."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:MOST]]
        if len(self.faults) > MOST:
            lines.append(f"{one_line(self.faults[0].file)}: and {len(self.faults) - MOST} more")
        return "\n".join(lines)

"""Numbers as RouterOS takes them: lists of ranges, bit rates, amounts of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kKMG]?)(?:bps)?")
_AMOUNT = re.compile(r"(\d+)(%|KiB|MiB)?")
_FACTOR = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "KiB": 2**10, "MiB": 2**20}


def _invalid_argument(argument: str) -> TrapError:
    return TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE)


def numbers(text: str) -> Iterator[int]:
    """The numbers that a list of ranges in its printed form means."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@dataclass(frozen=True)
class Ranges:
    """A comma list of numbers and ranges, or one of some words.

    Printed in order, with neighbours joined to ranges (``1,3-5``) unless ``joined`` is false; that
    RouterOS sorts and joins them is inferred.
    """

    low: int
    high: int
    words: tuple[str, ...] = ()
    joined: bool = True

    def parse(self, argument: str, text: str) -> str:
        if text in self.words:
            return text
        found: set[int] = set()
        for part in text.split(","):
            match = _RANGE.fullmatch(part)
            if match is None:
                raise _invalid_argument(argument)
            first, last = int(match[1]), int(match[2] or match[1])
            if not self.low <= first <= last <= self.high:
                raise TrapError(f"value of {argument} out of range ({self.low}..{self.high})", ARGUMENT_VALUE)
            found |= set(range(first, last + 1))
        return _spell_ranges(sorted(found)) if self.joined else ",".join(map(str, sorted(found)))


def _spell_ranges(ordered: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@dataclass(frozen=True)
class Rate:
    """A bit rate: ``200G``, ``100.0Gbps``, ``10M``, plain bit/s; 0 is not a limit.

    Printed as plain bit/s, as the rates of queues are; inferred for the rates of a switch port.
    """

    def parse(self, argument: str, text: str) -> str:
        match = _RATE.fullmatch(text)
        if match is None:
            raise _invalid_argument(argument)
        return str(int(Decimal(match[1]) * _FACTOR[match[2]]))


@dataclass(frozen=True)
class Amount:
    """Memory as a percentage or in bytes, or ``auto``. Percentages print with their sign; inferred."""

    def parse(self, argument: str, text: str) -> str:
        if text == "auto":
            return text
        match = _AMOUNT.fullmatch(text)
        if match is None:
            raise _invalid_argument(argument)
        if match[2] != "%":
            return str(int(match[1]) * _FACTOR[match[2] or ""])
        if int(match[1]) > 100:
            raise TrapError(f"value of {argument} out of range (0..100)", ARGUMENT_VALUE)
        return text

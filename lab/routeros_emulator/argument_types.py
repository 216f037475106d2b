"""Types of arguments: each converts a client's text to the form that ``print`` returns."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Protocol

from lab.routeros_emulator import durations
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError, no_match

_MAC = re.compile(r"([0-9A-Fa-f]{2})([:.-]?)" + r"\2".join([r"([0-9A-Fa-f]{2})"] * 5))


class ArgumentType(Protocol):
    """Validates and normalises one argument's text."""

    def parse(self, argument: str, text: str) -> str:
        """Give the stored form; raises TrapError when the text is refused."""
        ...


@dataclass(frozen=True)
class Text:
    """Any text. An empty one clears the field, where the field may be absent."""

    def parse(self, argument: str, text: str) -> str:  # noqa: ARG002 - every kind is asked the same way
        return text


@dataclass(frozen=True)
class Bool:
    """yes, no, true or false; printed true or false."""

    def parse(self, argument: str, text: str) -> str:
        if text not in ("yes", "no", "true", "false"):
            raise no_match(argument)
        return "true" if text in ("yes", "true") else "false"


@dataclass(frozen=True)
class Enum:
    """One of a closed list of words."""

    words: tuple[str, ...]

    def parse(self, argument: str, text: str) -> str:
        if text not in self.words:
            raise no_match(argument)
        return text


@dataclass(frozen=True)
class Words:
    """A comma list of words of a closed list; printed in the list's own order, each once."""

    words: tuple[str, ...]

    def parse(self, argument: str, text: str) -> str:
        given = [part for part in text.split(",") if part]
        if any(part not in self.words for part in given):
            raise no_match(argument)
        return ",".join(word for word in self.words if word in given)


@dataclass(frozen=True)
class Integer:
    """A whole number in a range, decimal or 0x hexadecimal, or one of some words.

    ``hexadecimal`` prints as bridge priorities do (0x8000). The two messages are inferred.
    """

    low: int = 0
    high: int = 4294967295
    words: tuple[str, ...] = ()
    hexadecimal: bool = False

    def parse(self, argument: str, text: str) -> str:
        if text in self.words:
            return text
        try:
            value = int(text, 16) if text[:2].lower() == "0x" else int(text)
        except ValueError:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE) from None
        if not self.low <= value <= self.high:
            raise TrapError(f"value of {argument} out of range ({self.low}..{self.high})", ARGUMENT_VALUE)
        return f"0x{value:X}" if self.hexadecimal else str(value)


@dataclass(frozen=True)
class Duration:
    """A time interval in a range of seconds, or one of some words."""

    low: float = 0
    high: float = float("inf")
    words: tuple[str, ...] = ()

    def parse(self, argument: str, text: str) -> str:
        if text in self.words:
            return text
        try:
            value = durations.seconds(text)
        except ValueError:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE) from None
        if not self.low <= value <= self.high:
            limit = durations.spell(self.high) if self.high != float("inf") else ""
            message = f"value of {argument} out of range ({durations.spell(self.low)}..{limit})"
            raise TrapError(message, ARGUMENT_VALUE)
        return durations.spell(value)


@dataclass(frozen=True)
class Mac:
    """A MAC address with any of the three separators; printed with colons in upper case."""

    def parse(self, argument: str, text: str) -> str:
        match = _MAC.fullmatch(text)
        if match is None:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE)
        return ":".join(group.upper() for index, group in enumerate(match.groups()) if index != 1)


@dataclass(frozen=True)
class Interface4:
    """An IPv4 address with prefix length (a bare address means /32)."""

    def parse(self, argument: str, text: str) -> str:
        try:
            return ipaddress.IPv4Interface(text).with_prefixlen
        except ValueError:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE) from None


@dataclass(frozen=True)
class Prefixes:
    """A comma list of IPv4 or IPv6 networks; printed in canonical form."""

    def parse(self, argument: str, text: str) -> str:
        try:
            networks = [ipaddress.ip_network(part, strict=False) for part in text.split(",") if part]
        except ValueError:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE) from None
        return ",".join(str(net) for net in networks)


@dataclass(frozen=True)
class Reference:
    """The name of a row in one of some menus, or with ``many`` a comma list of names. An unknown one is
    refused where the row is checked."""

    menus: tuple[str, ...]
    many: bool = False

    def parse(self, argument: str, text: str) -> str:
        if not text and not self.many:
            raise no_match(argument)
        return ",".join(dict.fromkeys(filter(None, text.split(",")))) if self.many else text

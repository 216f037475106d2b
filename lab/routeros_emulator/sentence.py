"""One request of a client, taken apart (MikroTik manual, 'API')."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MASK = "***"
#: What the name of an attribute that holds a secret ends with: password, authentication-password, ….
_SECRET_ENDS = ("password", "passphrase", "secret", "response")
#: The value may be quoted, and in a script within a script its quotes are escaped themselves.
_QUOTED = r"\\+\"[^\"]*\"|\"(?:[^\"\\]|\\.)*\""
_SECRET_IN_TEXT = re.compile(rf"((?:password|secret|passphrase)=)({_QUOTED}|\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Sentence:
    """A command with its attributes (``=key=value``), API attributes (``.tag=``) and query words."""

    words: tuple[str, ...]
    command: str
    attributes: dict[str, str] = field(default_factory=dict)
    tag: str | None = None
    queries: tuple[str, ...] = ()

    @property
    def menu(self) -> str:
        """The path before the verb: ``/ip/address`` of ``/ip/address/print``."""
        return self.command.rpartition("/")[0]

    @property
    def verb(self) -> str:
        """The last part of the command: ``print``."""
        return self.command.rpartition("/")[2]

    def masked(self) -> list[str]:
        """Give the words with the value of everything that may be a secret hidden, for logs."""
        return [mask(word) for word in self.words]


def parse(words: list[str]) -> Sentence:
    """Sort a sentence's words by kind. Words of no known kind are left out, as the device does.

    ``=key`` without a second ``=`` means an empty value: some clients send empty values that way.
    A command may hold spaces instead of slashes.
    """
    command = "/" + "/".join(part for part in re.split(r"[/ ]+", words[0]) if part)
    attributes: dict[str, str] = {}
    tag: str | None = None
    queries: list[str] = []
    for word in words[1:]:
        if word.startswith("="):
            key, _, value = word[1:].partition("=")
            attributes[key] = value
        elif word.startswith(".tag="):
            tag = word.removeprefix(".tag=")
        elif word.startswith("?"):
            queries.append(word)
    if not words[0].startswith("/"):
        command = words[0]
    return Sentence(tuple(words), command, attributes, tag, tuple(queries))


def mask(word: str) -> str:
    """Hide what may be a secret in one word."""
    if word[:1] in ("=", "?"):
        key, separator, _ = word[1:].lstrip("=<>").partition("=")
        if key.lower().endswith(_SECRET_ENDS):
            return f"{word[0]}{key}={MASK}" if separator else word
    return _SECRET_IN_TEXT.sub(rf"\1{MASK}", word)

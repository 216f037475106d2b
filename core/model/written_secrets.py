"""Secrets that are written out in the options or the environment of an engine, by their names and by their forms. Pure.

Options stand in the arguments of a process, which every user of a node can read, and in plans and exported files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from core.util.scrub import has_form_of_secret

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ANYWHERE = frozenset({"password", "passwd", "passphrase", "secret", "credential", "credentials", "psk"})
_LAST = frozenset({"pat", "apikey", "accesskey", "authtoken", "pwd", "bearer"})
_KEYS = frozenset({"api", "access", "private", "auth", "signing", "encryption", "account", "service", "ssh"})
"""Words before `key`: without one of them a key is that of a cache or of a sort."""
_TOKENS = frozenset(
    {
        *("hf", "huggingface", "hub", "auth", "access", "bearer", "api", "github", "gitlab", "git", "refresh"),
        *("session", "security", "oauth", "user", "login", "bot", "admin"),
    }
)
"""Words before `token`: without one of them a token is a piece of text (`eos_token`, `max_tokens`)."""
_REFERENCES = frozenset({"file", "path", "dir", "folder", "name", "id", "env"})
"""Last words of a name that says where a secret is, and not what it is."""


def written_secret(name: str, value: object, *, variable: bool = False) -> str | None:
    """Return where in the value of an option a secret is: empty for the value itself, None without one.

    Args:
        name: of the option or the variable.
        value: as JSON has it, or JSON as text.
        variable: whether it is a variable of the environment, where `*_TOKEN` is always a secret.
    """
    named = _names_secret(name) or (variable and _name_words(name)[-1:] == ["token"])
    return next(_secret_places(named, value), None)


def _secret_places(named: bool, value: object) -> Iterator[str]:
    if isinstance(value, str):
        if named and value:
            yield ""
        elif isinstance(inner := _parse_json(value), dict | list):
            yield from _secret_places(False, inner)
        elif has_form_of_secret(value):
            yield ""
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            for place in _secret_places(_names_secret(str(key)), inner):
                yield f"{key}.{place}".removesuffix(".")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _secret_places(named, inner)
    elif named and isinstance(value, int | float) and not isinstance(value, bool):
        yield ""


def _parse_json(text: str) -> object:
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def _name_words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _names_secret(name: str) -> bool:
    words = _name_words(name)
    if not words or words[-1] in _REFERENCES:
        return False
    pairs = set(pairwise(words))
    return (
        not _ANYWHERE.isdisjoint(words)
        or words[-1] in _LAST
        or words == ["token"]
        or any(
            (second == "key" and first in _KEYS) or (second == "token" and first in _TOKENS) for first, second in pairs
        )
    )

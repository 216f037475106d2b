"""Texts that stand as files of a package: `files/` holds constant ones, `templates/` those with placeholders @NAME@."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_PLACEHOLDER = re.compile(r"@([A-Z][A-Z0-9_]*)@")
_DIRECTIVE = re.compile(r"^[ \t]*# shellcheck (?:shell|disable)=.*\n", re.MULTILINE)
"""A line for shellcheck, with its reason. It is not part of the text: what is sent to a node is no longer for it."""


def file_text(package: str, name: str, **values: object) -> str:
    """Return the content of a file that is written to a node.

    Args:
        package: the package that has the file, like `roles.memory`.
        name: the path of the file below the package, like `templates/memory-gate.sh`.
        values: the value of each placeholder, by its name in lower case. A placeholder in a value is not replaced.

    Raises:
        ValueError: a placeholder has no value, or a value no placeholder.
    """
    text = _read_template(package, name)
    words = {key.upper(): str(value) for key, value in values.items()}
    if odd := words.keys() ^ set(_PLACEHOLDER.findall(text)):
        raise ValueError(f"{package}/{name}: placeholders and values differ in {', '.join(sorted(odd))}")
    return _PLACEHOLDER.sub(lambda match: words[match[1]], text)


def shell_text(package: str, name: str, **values: object) -> str:
    """Return a script that is run, not written to a node: the same as `file_text` without the last newline."""
    return file_text(package, name, **values).removesuffix("\n")


@cache
def _read_template(package: str, name: str) -> str:
    return _DIRECTIVE.sub("", files(package).joinpath(name).read_text(encoding="utf-8"))

"""What a YAML parser complains about, in words for the person who wrote the file."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

# What the parser says, what is wrong, what would be right; the first that occurs in its words is taken.
_KNOWN = (
    (r"found character '\t'", "a tab is used for indentation", "indent with spaces"),
    (r"found character", "a value begins with a sign that has a meaning in YAML", "put the value in quotes"),
    ("unexpected end of stream", "a quote is opened here and never closed", "add the closing quote"),
    ("<stream end>", "a bracket is opened here and never closed", "add the closing bracket"),
    (
        "expected ',' or",
        "the bracket opened here is not closed, or a comma is missing",
        "separate with commas and close it",
    ),
    (
        "mapping values are not allowed",
        "a ':' stands where none can be",
        "check the indentation, and quote values with ': '",
    ),
    ("could not find expected ':'", "a key has no ':'", "write key: value"),
    ("expected <block end>", "the indentation does not fit the lines above", "align keys of one section"),
    ("unknown escape character", "a backslash in double quotes is no known escape", "use single quotes"),
)
# For these the line where something was opened says more than the line where that became clear.
_CONFLICT = re.compile(r"^(<{7}|\|{7}|>{7})( |$)|^={7}$", re.MULTILINE)
"""What git leaves around the sides of a conflict."""
_OPENED = ("expected ',' or", "unexpected end of stream", "<stream end>", "could not find expected ':'")


def explain(error: YAMLError, text: str) -> tuple[int, str, str]:
    """Line (from 1), what is wrong, what would be right. Repeats nothing of the file: it may be a secret."""
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"a control character (U+{error.character:04X}) stands here", "remove it"
    conflict = _CONFLICT.search(text)
    if conflict:
        line = text.count("\n", 0, conflict.start()) + 1
        return line, "a conflict mark of git stands here", "keep one of the two sides and remove the marks"
    problem = str(getattr(error, "problem", "") or "")
    mark = getattr(error, "problem_mark", None)
    opened = getattr(error, "context_mark", None)
    if opened is not None and any(words in problem for words in _OPENED):
        mark = opened
    line = mark.line + 1 if mark is not None else 1
    if "'\\t'" in problem and mark is not None and text.splitlines()[mark.line][: mark.column].strip():
        return line, "a tab stands where only spaces can be", "write a space instead of it"
    for words, what, right in _KNOWN:
        if words in problem:
            return line, what, right
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "...", problem) if isinstance(error, MarkedYAMLError) else ""
    return line, f"is not YAML{f' ({said})' if said else ''}", "check quotes, brackets and indentation"

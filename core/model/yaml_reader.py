"""The text of a rack file as plain data, with the line and the spelling of every value.

YAML 1.2 (core schema) is read: `yes`, `no`, `on` and `off` are text. Anchors, aliases, tags, directives and further
documents are refused: a rack file needs none of them, and each hides part of the content. The parser's events are
processed once; building its round-trip objects takes several times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from core.model.errors import Path, RuleViolation, holds_secret, truncate

# The parser's message, the problem, the fix; the first entry that occurs in the message is used.
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
    ("unknown escape character", "a backslash in double quotes is not a known escape", "use single quotes"),
)
# For these the line of the opening is more useful than the line of the detection.
_CONFLICT = re.compile(r"^(<{7}|\|{7}|>{7})( |$)|^={7}$", re.MULTILINE)
"""Conflict markers of git."""
_NO_BREAK = re.compile(r"^[^#\n]*([\u00a0\u2007\u202f])", re.MULTILINE)
"""A space outside of a comment that YAML does not take for one."""
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
    if space := _NO_BREAK.search(text):
        line = text.count("\n", 0, space.start(1)) + 1
        return line, f"a no-break space (U+{ord(space[1]):04X}) stands here", "write a space instead of it"
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
    message = re.sub(r"'[^']*'|\"[^\"]*\"", "...", problem) if isinstance(error, MarkedYAMLError) else ""
    return line, f"is not YAML{f' ({message})' if message else ''}", "check quotes, brackets and indentation"


_DEEPEST = 12
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_BASED = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass
class YamlDocument:
    """The data of a file; `lines` (from 1) and `spelling` have the line and the text of each value.

    `problems` are errors in the text itself, with lines; `whole` is False when reading stopped.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    spelling: dict[Path, str] = field(default_factory=dict)
    problems: list[tuple[int, RuleViolation]] = field(default_factory=list)
    whole: bool = True

    def line(self, path: Path) -> int:
        """The line of the value at `path`, or of the nearest section around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str) -> YamlDocument:
    """Read `text`; what is wrong is in `problems`, and `whole` is False when reading could not go on."""
    reader = _Reader()
    try:
        for event in YAML(typ="base", pure=True).parse(text):
            if not reader.take(event):
                break
    except YAMLError as error:
        line, what, right = explain(error, text)
        reader.stop(line, (), what, right)
    return reader.document


def plain(text: str) -> Any:
    """The value of an unquoted scalar in the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".", "") if text[-1].isalpha() else text)
    return text


_NO_KEY = object()


@dataclass(frozen=True, eq=False)
class _Dropped:
    """A rejected key: its value is read, kept apart, and dropped. `key`: in the form of messages."""

    key: Any

    def __str__(self) -> str:
        return str(self.key)


@dataclass
class _Open:
    """A mapping or list that is still being read."""

    value: dict[Any, Any] | list[Any]
    path: Path
    key: Any = _NO_KEY


class _Reader:
    def __init__(self) -> None:
        self.document = YamlDocument()
        self.open: list[_Open] = []
        self.begun = False

    def stop(self, line: int, path: Path, what: str, right: str) -> bool:
        self.document.whole = False
        return self.note(line, path, what, right)

    def note(self, line: int, path: Path, what: str, right: str) -> bool:
        self.document.problems.append((line, RuleViolation(path, what, right)))
        return False

    def take(self, event: Event) -> bool:
        """Take one event in; False when reading cannot go on."""
        if isinstance(event, ScalarEvent):
            return self._read_scalar(event)
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            return self._begin_collection(event)
        if isinstance(event, CollectionEndEvent):
            self.open.pop()
        elif isinstance(event, AliasEvent):
            return self._read_alias(event)
        elif isinstance(event, DocumentStartEvent):
            line = event.start_mark.line + 1
            if self.begun:
                return self.stop(line, (), "a second document begins here", "keep one rack in one file")
            if event.version or event.tags:
                return self.stop(line, (), "a YAML directive (%) stands above this line", "remove it")
            self.begun = True
        return True

    def _next_path(self, line: int) -> Path | None:
        """The path of the value that comes next; None when it comes where a key should be."""
        if not self.open:
            return ()
        top = self.open[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        if top.key is _NO_KEY:
            self.stop(line, top.path, "a key is not a single word", "write key: value")
            return None
        return (*top.path, top.key)

    def _put_value(self, value: Any, path: Path, line: int) -> None:
        if not self.open:
            self.document.data = value
        else:
            top = self.open[-1]
            if isinstance(top.value, list):
                top.value.append(value)
            else:
                if not isinstance(top.key, _Dropped):
                    top.value[top.key] = value
                top.key = _NO_KEY
        # a key has set its own line already; an entry of a list or the whole file has none before its value
        self.document.lines.setdefault(path, line)

    def _read_scalar(self, event: ScalarEvent) -> bool:
        line = event.start_mark.line + 1
        bare = event.style is None
        if event.style in ("'", '"') and event.end_mark.line >= line:
            # no value of a rack has two lines: far more likely the closing quote was forgotten
            what = f"a quote is opened here and closed on line {event.end_mark.line + 1}"
            return self.stop(line, (), what, "close it on the line it is opened on")
        value = plain(event.value) if bare else event.value
        top = self.open[-1] if self.open else None
        if top and isinstance(top.value, dict) and top.key is _NO_KEY:
            self._refuse_anchor_and_tag(event, top.path, line)
            self._read_key(top, value, event.value, line)
            return True
        path = self._next_path(line)
        if path is None:
            return False
        self._refuse_anchor_and_tag(event, path, line)
        if bare and not event.value and top and isinstance(top.key, str) and ":" in top.key:
            # As in {1:spark2/1}, which YAML reads as one key without a value.
            first, _, rest = top.key.partition(":")
            right = f"write {truncate(f'{first}: {rest}')}" if not holds_secret(path) else "write key: value"
            self.note(line, path, "a space is missing behind the ':'", right)
            top.key = _NO_KEY
            return True
        if bare:
            self.document.spelling[path] = event.value
        self._put_value(value, path, line)
        return True

    def _read_key(self, top: _Open, key: Any, spelled: str, line: int) -> None:
        # Of keys that are not text only numbers have a meaning, those of ports, and each in one spelling.
        if not isinstance(key, str) and (type(key) is not int or str(key) != spelled):
            top.key = _Dropped(spelled)
            path = (*top.path, top.key)
            self.document.lines[path] = line
            word = "" if holds_secret(path) else f': "{truncate(spelled)}"'
            self.note(line, path, "the key is not a text to YAML", f"write it in quotes{word}")
            return
        path = (*top.path, key)
        if key in top.value:
            first = self.document.lines[path]
            self.note(line, path, f"is written twice, first on line {first}", "keep one of the two")
            top.key = _Dropped(key)
        else:
            self.document.lines[path] = line
            top.key = key

    def _begin_collection(self, event: MappingStartEvent | SequenceStartEvent) -> bool:
        line = event.start_mark.line + 1
        path = self._next_path(line)
        if path is None:
            return False
        if len(self.open) >= _DEEPEST:
            return self.stop(line, path[:2], "is nested too deep", "no section of a rack is")
        self._refuse_anchor_and_tag(event, path, line)
        value: dict[Any, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        self._put_value(value, path, line)
        self.open.append(_Open(value, path))
        return True

    def _read_alias(self, event: AliasEvent) -> bool:
        line = event.start_mark.line + 1
        path = self._next_path(line)
        if path is None:
            return False
        self.note(line, path, "is an alias (*), which a rack file does not know", "write the value itself")
        self._put_value(None, path, line)
        return True

    def _refuse_anchor_and_tag(
        self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent, path: Path, line: int
    ) -> None:
        if event.anchor is not None:
            self.note(line, path, "has an anchor (&), which a rack file does not know", "remove it")
        if event.tag is not None:
            self.note(line, path, "has a tag (!), which a rack file does not know", "remove it, or quote the value")

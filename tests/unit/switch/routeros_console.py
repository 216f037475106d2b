"""A tiny RouterOS console: just enough of the language to run what an undo is made of, on tables in memory.

Written against the manual's page 'Scripting', not against the code that makes the scripts. As on a switch,
nothing of a script runs when a line of it cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.unit.switch.rows import SINGLE, Tables

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|!=|[=\[\]{}()]|[^\s="!\[\]{}()]+')
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$", "?": "?"}
_FLAGS = {"yes": "true", "no": "false"}

Row = dict[str, str]
Test = Callable[[Row], bool]


class ScriptSyntaxError(Exception):
    """A line that no console could read."""


@dataclass(frozen=True)
class Command:
    """One command of a script: what a command tree can be asked about."""

    path: str
    verb: str
    test: Test | None
    arguments: Mapping[str, str]
    unless_found: Test | None = None


def parse(text: str) -> list[Command]:
    """The commands of a script in order. ScriptSyntaxError for anything unknown."""
    lines = (line for line in text.split("\n") if line and not re.fullmatch(r':log warning "[^"\\]*"', line))
    return [_parse_line(line) for line in lines]


def readable(text: str) -> bool:
    """Whether a console can read all of it."""
    try:
        parse(text)
    except ScriptSyntaxError:
        return False
    return True


def run(text: str, tables: Tables) -> None:
    """Run a script on `tables`; a `:do` that fails does not keep the next from running."""
    for command in parse(text):
        _carry_out(command, tables)


def _parse_line(line: str) -> Command:
    words = _Words(line)
    if words.peek() == ":do":
        words.expect(":do", "{")
        command = _parse_command(words)
        words.expect("}", "on-error", "=", "{", ":log", "error")
        words.text()
        words.expect("}")
    else:
        command = _parse_command(words)
    words.end()
    return command


class _Words:
    def __init__(self, line: str) -> None:
        self.words = _TOKEN.findall(line)
        if "".join(self.words) != _without_spaces(line):
            raise ScriptSyntaxError(line)
        self.at = 0

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def next(self) -> str:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ""

    def expect(self, *words: str) -> None:
        for word in words:
            if self.next() != word:
                raise ScriptSyntaxError(f"expected {word} in {' '.join(self.words)}")

    def text(self) -> str:
        """A quoted text, or a bare word."""
        word = self.next()
        if not word.startswith('"'):
            return word
        pattern = r"\\(?:([0-9A-F]{2})|(.))"
        text = re.sub(pattern, lambda found: _decode_byte(found[1]) or _ESCAPED[found[2]], word[1:-1], flags=re.DOTALL)
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def end(self) -> None:
        if self.peek():
            raise ScriptSyntaxError(f"{self.peek()} is left over")


def _decode_byte(digits: str | None) -> str:
    number = int(digits or "0", 16)
    return "" if not digits else chr(number) if number < 0x80 else chr(0xDC00 + number)


def _without_spaces(line: str) -> str:
    """The line without the spaces outside of quotes."""
    parts = re.findall(r'"(?:\\.|[^"\\])*"|[^"]+', line)
    return "".join(part if part.startswith('"') else part.replace(" ", "") for part in parts)


def _parse_command(words: _Words) -> Command:
    if words.peek() == ":if":
        words.expect(":if", "(", "[", ":len", "[")
        path, verb = words.next(), words.next()
        words.expect("where")
        test = _parse_or(words)
        words.expect("]", "]", "=", "0", ")", "do", "=", "{")
        inner = _parse_command(words)
        words.expect("}")
        if (path, verb) != (inner.path, "find"):
            raise ScriptSyntaxError(f"looks in {path} and writes {inner.path}")
        return Command(inner.path, inner.verb, inner.test, inner.arguments, unless_found=test)
    path, verb = words.next(), words.next()
    if not path.startswith("/"):
        raise ScriptSyntaxError(f"{path} is not a path")
    found = None
    if words.peek() == "[":
        words.expect("[", "find", "where")
        found = _parse_or(words)
        words.expect("]")
    arguments = {}
    while words.peek() not in ("}", ""):
        name = words.next()
        words.expect("=")
        arguments[name] = words.text()
    return Command(path, verb, found, arguments)


def _parse_or(words: _Words) -> Test:
    tests = [_parse_and(words)]
    while words.peek() == "or":
        words.next()
        tests.append(_parse_and(words))
    return lambda row: any(test(row) for test in tests)


def _parse_and(words: _Words) -> Test:
    tests = [_parse_single(words)]
    while words.peek() == "and":
        words.next()
        tests.append(_parse_single(words))
    return lambda row: all(test(row) for test in tests)


def _parse_single(words: _Words) -> Test:
    if words.peek() == "(":
        words.next()
        test = _parse_or(words)
        words.expect(")")
        return test
    name, operator, value = words.next(), words.next(), words.text()
    if operator not in ("=", "!="):
        raise ScriptSyntaxError(f"{name} {operator} {value}")
    return lambda row: (_FLAGS.get(value, value) == row.get(name, "")) is (operator == "=")


def _carry_out(command: Command, tables: Tables) -> None:
    rows = tables[command.path]
    values = {name: _FLAGS.get(value, value) for name, value in command.arguments.items()}
    if command.unless_found and any(command.unless_found(row) for row in rows):
        return
    if command.verb == "add":
        rows.append({".id": f"*{0x200 + len(rows):X}", **values})
        return
    test = command.test or (lambda _row: command.path in SINGLE)
    hit = [row for row in rows if test(row)]
    match command.verb:
        case "set":
            for row in hit:
                row.update(values)
        case "remove":
            tables[command.path] = [row for row in rows if row not in hit]
        case _:
            raise ScriptSyntaxError(command.verb)

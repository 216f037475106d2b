"""The words of a script: quoting, escapes, brackets, braces, comments (MikroTik manual, 'Scripting')."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "_": " "}
_LITERAL = '"\\$?'
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_CALLED = {"]": "bracket", "}": "brace", ")": "parenthesis"}
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_END = frozenset(' \t\r\n;[]{}()"$')


class ScriptError(Exception):
    """A script cannot be executed, or not further; the text is that of the unit's log."""


@dataclass(frozen=True)
class Sub:
    """A command in brackets, whose answer is a value."""

    text: str
    line: int


@dataclass(frozen=True)
class Block:
    """Commands in braces."""

    text: str
    line: int


@dataclass(frozen=True)
class WordGroup:
    """An expression in parentheses."""

    text: str
    line: int


Part = str | Sub | Block | WordGroup


@dataclass(frozen=True)
class Word:
    """``value`` or ``key=value``, with the place where it starts. ``bare`` is a value without quotes."""

    key: str | None
    value: Part
    bare: bool
    line: int
    column: int

    @property
    def place(self) -> str:
        """The place in the form of error texts."""
        return f"(line {self.line} column {self.column})"


class Scanner:
    """Takes a text apart, from left to right. Raises ScriptError at what is not a script."""

    def __init__(self, text: str, line: int = 1) -> None:
        self._text, self._at, self._line, self._column = text, 0, line, 1

    @property
    def rest(self) -> str:
        """The text not yet taken."""
        return self._text[self._at :]

    @property
    def line(self) -> int:
        """The number of the next line."""
        return self._line

    def statements(self) -> Iterator[list[Word]]:
        """Give the words of each command; commands end with a line or ``;``."""
        words: list[Word] = []
        while (char := self._peek_character()) != "":
            if char in ";\r\n":
                self._take_character()
                if words:
                    yield words
                words = []
            elif char == "#" and not words:
                while self._peek_character() not in ("", "\n"):
                    self._take_character()
            elif not self._skip_blank():
                words.append(self.word())
        if words:
            yield words

    def word(self) -> Word:
        """Take one word; the caller has skipped what is before it."""
        line, column, start = self._line, self._column, self._at
        value = self._read_value(_END | {"="})
        bare = isinstance(value, str) and self._text[start : start + 1] != '"'
        if bare and self._peek_character() == "=" and isinstance(value, str) and _NAME.issuperset(value) and value:
            self._take_character()
            if self.rest.startswith(("\\\n", "\\\r\n")):  # an export also breaks its lines here
                self.skip()
            return Word(value, self._read_value(_END), False, line, column)
        while bare and self._at > start and self._peek_character() == "=":  # a comparison, as in ``print where a!=b``
            self._take_character()
            self._read_value(_END)
            value = self._text[start : self._at]
        if bare and self._at == start:
            raise self.error()
        return Word(None, value, bare, line, column)

    def skip(self) -> bool:
        """Skip blanks and continued line ends; False when nothing more comes."""
        while self._skip_blank():
            pass
        return self._peek_character() != ""

    def error(self, what: str = "syntax error") -> ScriptError:
        """An error at the present place."""
        return ScriptError(f"{what} (line {self._line} column {self._column})")

    def _skip_blank(self) -> bool:
        if self._peek_character() in (" ", "\t"):
            self._take_character()
            return True
        for ending in ("\\\r\n", "\\\n"):
            if self.rest.startswith(ending):
                for _ in ending:
                    self._take_character()
                return True
        return False

    def _read_value(self, end: frozenset[str]) -> Part:
        char, line = self._peek_character(), self._line
        if char == '"':
            return self._read_quoted()
        if char == "[":
            return Sub(self._read_enclosed(), line)
        if char == "{":
            return Block(self._read_enclosed(), line)
        if char == "(":
            return WordGroup(self._read_enclosed(), line)
        if char == "$":
            raise self.error("variables and expressions are not emulated")
        start = self._at
        while self._peek_character() not in end and self._peek_character() != "":
            if self._peek_character() == "\\":
                break
            self._take_character()
        return self._text[start : self._at]

    def _read_quoted(self) -> str:
        self._take_character()
        parts: list[str] = []
        while (char := self._take_character()) != '"':
            if char == "":
                raise self.error("expected closing quote")
            if char == "$":
                raise self.error("variables and expressions are not emulated")
            parts.append(self._read_escape() if char == "\\" else char)
        return joined("".join(parts))

    def _read_escape(self) -> str:
        """One escape of a quoted value. A line end with the blanks after it continues the line."""
        char = self._take_character()
        if char in _LITERAL and char:
            return char
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "\r" and self._peek_character() == "\n":
            char = self._take_character()
        if char == "\n":
            while self._peek_character() in (" ", "\t"):
                self._take_character()
            return ""
        try:
            return byte(char + self._take_character())
        except ValueError:
            raise self.error() from None

    def _read_enclosed(self) -> str:
        """The text between an opening mark and the one that closes it."""
        stack = [_CLOSING[self._take_character()]]
        start = self._at
        while stack:
            char = self._peek_character()
            if char == "":
                raise self.error(f"expected closing {_CALLED[stack[-1]]}")
            if char == '"':
                self._skip_quoted()
                continue
            if char in _CLOSING:
                stack.append(_CLOSING[char])
            elif char == stack[-1]:
                stack.pop()
            self._take_character()
        return self._text[start : self._at - 1]

    def _skip_quoted(self) -> None:
        self._take_character()
        while (char := self._take_character()) != '"':
            if char == "":
                raise self.error("expected closing quote")
            if char == "\\":
                self._take_character()

    def _peek_character(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take_character(self) -> str:
        char = self._peek_character()
        self._at += len(char)
        if char == "\n":
            self._line, self._column = self._line + 1, 1
        else:
            self._column += len(char)
        return char


def byte(digits: str) -> str:
    """The byte of a hexadecimal escape; one above ASCII as the surrogate that stands for it. Raises ValueError."""
    number = int(digits, 16)
    return chr(number) if number < 0x80 else chr(0xDC00 + number)


def joined(text: str) -> str:
    """Bytes that are UTF-8 together become the letter that they are."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

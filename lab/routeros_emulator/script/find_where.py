"""The condition of ``find where …``: comparisons joined by and, or, ! and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lab.routeros_emulator.script.lexer import ScriptError, byte, joined

View = Mapping[str, str]
Test = Callable[[View], bool]

_TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>"(?:[^"\\]|\\.)*") | (?P<operator>!=|<=|>=|&&|\|\||[=~<>!()])
             | (?P<bare>[^\s"=~<>!()&|;\[\]{}$]+) )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-9A-F]{2})|(.))", re.DOTALL)
_TRUTH = {"yes": "true", "no": "false"}
_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "~": lambda left, right: re.search(right, left) is not None,
    "<": lambda left, right: _sort_key(left) < _sort_key(right),
    ">": lambda left, right: _sort_key(left) > _sort_key(right),
    "<=": lambda left, right: _sort_key(left) <= _sort_key(right),
    ">=": lambda left, right: _sort_key(left) >= _sort_key(right),
}


def parse(text: str) -> Test:
    """Make a test of rows out of a condition; an empty one is true of every row. Raises ScriptError.

    Several comparisons side by side without a word between them must all hold, as the console has it.
    """
    tokens = _split_tokens(text)
    if not tokens:
        return lambda _row: True
    test, rest = _parse_or(tokens)
    if rest:
        raise ScriptError(f"syntax error near {rest[0][1]!r} in a condition")
    return test


def _split_tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ScriptError(f"syntax error near {text[at : at + 10]!r} in a condition")
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "quoted":
            value = joined(_ESCAPE.sub(lambda found: byte(found[1]) if found[1] else found[2], value[1:-1]))
        tokens.append((kind, value))
        at = match.end()
    return tokens


Tokens = list[tuple[str, str]]


def _parse_or(tokens: Tokens) -> tuple[Test, Tokens]:
    test, rest = _parse_and(tokens)
    while rest and rest[0] in (("bare", "or"), ("operator", "||")):
        other, rest = _parse_and(rest[1:])
        test = _join_by_or(test, other)
    return test, rest


def _parse_and(tokens: Tokens) -> tuple[Test, Tokens]:
    test, rest = _parse_single(tokens)
    while rest and rest[0] not in (("bare", "or"), ("operator", "||"), ("operator", ")")):
        if rest[0] in (("bare", "and"), ("operator", "&&")):
            rest = rest[1:]
        other, rest = _parse_single(rest)
        test = _join_by_and(test, other)
    return test, rest


def _parse_single(tokens: Tokens) -> tuple[Test, Tokens]:
    if not tokens:
        raise ScriptError("a condition ends too early")
    (kind, value), rest = tokens[0], tokens[1:]
    if (kind, value) == ("operator", "!"):
        test, rest = _parse_single(rest)
        return (lambda row: not test(row)), rest
    if (kind, value) == ("operator", "("):
        test, rest = _parse_or(rest)
        if not rest or rest[0] != ("operator", ")"):
            raise ScriptError("expected closing parenthesis in a condition")
        return test, rest[1:]
    if kind != "bare":
        raise ScriptError(f"syntax error near {value!r} in a condition")
    if rest and rest[0][0] == "operator" and rest[0][1] in _COMPARE:
        if len(rest) < 2 or rest[1][0] == "operator":
            # ``comment=`` with nothing behind it asks for an empty value.
            return _make_comparison(value, rest[0][1], ""), rest[1:]
        return _make_comparison(value, rest[0][1], rest[1][1]), rest[2:]
    return (lambda row: row.get(value, "false") not in ("false", "")), rest


def _make_comparison(name: str, operator: str, wanted: str) -> Test:
    compare = _COMPARE[operator]
    if operator == "~":
        try:
            re.compile(wanted)
        except re.error:
            raise ScriptError(f"bad regular expression {wanted!r}") from None

    def test(row: View) -> bool:
        value = row.get(name, "")
        right = _TRUTH.get(wanted, wanted) if value in _TRUTH.values() else wanted
        return compare(value, right)

    return test


def _sort_key(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.lstrip("-").isdigit() else (1, 0, text)


def _join_by_or(left: Test, right: Test) -> Test:
    return lambda row: left(row) or right(row)


def _join_by_and(left: Test, right: Test) -> Test:
    return lambda row: left(row) and right(row)

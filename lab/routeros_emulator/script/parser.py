"""From a script's text to the steps that carry it out. Like the device, all of it is read before any of it
is done: a script with one wrong word does nothing."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lab.routeros_emulator import durations
from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.script import find_where
from lab.routeros_emulator.script.find_where import Test
from lab.routeros_emulator.script.lexer import Block, Part, Scanner, ScriptError, Sub, Word, WordGroup

Menus = Mapping[str, EmulatedMenu]
_NUMBERED = frozenset({"set", "unset", "remove", "enable", "disable"})
#: Name of the first bare word of a command, where it is not a row.
_POSITIONAL = {
    ("/system/script", "run"): "number",
    **{("/log", level): "message" for level in ("debug", "info", "warning", "error")},
}
_COUNT = re.compile(
    r"\s*\[\s*:?len\s+\[(?P<find>.*)\]\s*\]\s*(?P<operator>=|!=|<=|>=|<|>)\s*(?P<number>\d+)\s*", re.DOTALL
)
_SINCE = re.compile(
    r"\s*\[\s*(?P<menu>/[a-z/ -]+?)\s+get\s+(?P<field>[a-z-]+)\s*\]\s*(?P<operator><=|>=|<|>)\s*(?P<time>[\w:]+)\s*"
)
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_CHECKED = frozenset({"add", "set"})
_ALWAYS = frozenset({"numbers", ".id", "copy-from", "place-before"})


@dataclass(frozen=True)
class Find:
    """The ids of the rows of a menu that answer a condition."""

    menu: str
    test: Test


Value = str | Find


@dataclass(frozen=True)
class RunStep:
    """One command, with the line it stands in."""

    menu: str
    verb: str
    line: int
    arguments: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Delay:
    """A wait, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Attempt:
    """``:do { } on-error={ }``; without ``on-error`` an error propagates."""

    body: tuple[Step, ...]
    otherwise: tuple[Step, ...] | None


@dataclass(frozen=True)
class Fail:
    """``:error``: ends the script with a text."""

    message: str


@dataclass(frozen=True)
class Span:
    """A time interval that a menu of one row shows, as ``[/system/resource get uptime]``."""

    menu: str
    field: str


@dataclass(frozen=True)
class If:
    """``:if (…) do={ } else={ }``. Two conditions are emulated: how many rows are found, ``[:len [find …]] = 0``,
    and how a time interval compares, ``[/system/resource get uptime] > 10m``."""

    what: Find | Span
    test: Callable[[float], bool]
    body: tuple[Step, ...]
    otherwise: tuple[Step, ...]


Step = RunStep | Delay | Attempt | Fail | If


def read(text: str, menus: Menus, version: tuple[int, ...], line: int = 1) -> tuple[Step, ...]:
    """Read a script; ScriptError has the problem and its place."""
    return tuple(_ScriptReader(menus, version).steps(text, line))


class _ScriptReader:
    """Holds the menu in which commands without a leading slash stand, as an export leaves it."""

    def __init__(self, menus: Menus, version: tuple[int, ...], within: str = "") -> None:
        self._menus, self._version, self._within = menus, version, within

    def steps(self, text: str, line: int) -> Iterator[Step]:
        for words in Scanner(text, line).statements():
            yield from self._parse_statement(words)

    def _parse_statement(self, words: list[Word]) -> Iterator[Step]:
        first, rest = words[0], words[1:]
        name = first.value if first.bare else None
        if isinstance(first.value, Block) and first.key is None and not rest:
            yield Attempt(self._parse_block(first.value), None)
        elif name in (":do", "do"):
            yield self._parse_attempt(first, rest)
        elif name in (":if", "if"):
            yield self._parse_choice(first, rest)
        elif name in (":delay", "delay"):
            yield Delay(_seconds_of_word(_require_one_word(first, rest)))
        elif name in (":error", "error"):
            yield Fail(_text_of_word(_require_one_word(first, rest)))
        elif name in (":put", "put"):
            _require_one_word(first, rest)
        else:
            if isinstance(name, str) and name.startswith(":"):
                slash = Word(None, f"/{name[1:]}", True, first.line, first.column)
                words = [slash, *rest]
            yield from self._parse_command(words)

    def _parse_choice(self, first: Word, rest: list[Word]) -> If:
        blocks = {word.key: word.value for word in rest}
        group, body, otherwise = (blocks.pop(key, None) for key in (None, "do", "else"))
        if not isinstance(group, WordGroup) or not isinstance(body, Block) or blocks:
            raise ScriptError(f"syntax error {first.place}")
        what, test = self._parse_condition(first, group)
        steps = self._parse_block(otherwise) if isinstance(otherwise, Block) else ()
        return If(what, test, self._parse_block(body), steps)

    def _parse_condition(self, first: Word, group: WordGroup) -> tuple[Find | Span, Callable[[float], bool]]:
        number: float
        if count := _COUNT.fullmatch(group.text):
            compare, number = _OPERATORS[count["operator"]], int(count["number"])
            return self._parse_find(self._within, Sub(count["find"], group.line)), lambda found: compare(found, number)
        if since := _SINCE.fullmatch(group.text):
            path = since["menu"].replace(" ", "/")
            menu = self._menus.get(path)
            if menu is None or not menu.singleton:
                raise ScriptError(f"bad command name {path} {first.place}")
            try:
                compare, number = _OPERATORS[since["operator"]], durations.seconds(since["time"])
            except ValueError:
                raise ScriptError(f"invalid time interval {first.place}") from None
            return Span(path, since["field"]), lambda found: compare(found, number)
        raise ScriptError(f"this condition is not emulated {first.place}")

    def _parse_attempt(self, first: Word, rest: list[Word]) -> Attempt:
        blocks = {word.key: word.value for word in rest}
        body, otherwise = blocks.pop(None, None), blocks.pop("on-error", None)
        if not isinstance(body, Block) or blocks or not isinstance(otherwise, Block | None):
            raise ScriptError(f"syntax error {first.place}")
        return Attempt(self._parse_block(body), None if otherwise is None else self._parse_block(otherwise))

    def _parse_block(self, block: Block) -> tuple[Step, ...]:
        return tuple(_ScriptReader(self._menus, self._version, self._within).steps(block.text, block.line))

    def _parse_command(self, words: list[Word]) -> Iterator[Step]:
        menu, verb, rest = self._locate_command(words)
        if verb is None:
            self._within = menu
        elif verb not in ("print", "find"):  # whose answer would be lost
            yield RunStep(menu, verb, words[0].line, self._parse_arguments(menu, verb, rest))

    def _locate_command(self, words: list[Word]) -> tuple[str, str | None, list[Word]]:
        """Give the menu, the command (None: the words only name a menu) and the words left over."""
        path = self._within
        for count, word in enumerate(words):
            if word.key is not None or not word.bare or not isinstance(word.value, str):
                raise ScriptError(f"bad command name {word.place}")
            if count == 0 and word.value.startswith("/"):
                path = ""
            for part in filter(None, word.value.split("/")):
                if self._menu_has(path, part):
                    return path, part, words[count + 1 :]
                path = f"{path}/{part}"
                if not any(f"{known}/".startswith(f"{path}/") for known in self._menus):
                    raise ScriptError(f"bad command name {part} {word.place}")
        return path, None, []

    def _menu_has(self, path: str, verb: str) -> bool:
        menu = self._menus.get(path)
        if menu is None:
            return False
        return verb in menu.verbs or verb in menu.actions or verb in ("export", "find")

    def _parse_arguments(self, menu: str, verb: str, words: list[Word]) -> dict[str, Value]:
        first = "numbers" if verb in _NUMBERED else _POSITIONAL.get((menu, verb))
        given: dict[str, Value] = {}
        for word in words:
            if word.key is not None:
                name, value = word.key, self._parse_value(menu, word.value)
            elif first is not None and first not in given and not self._menus[menu].singleton:
                name, value = first, self._parse_value(menu, word.value)
            elif word.bare and isinstance(word.value, str):
                name, value = word.value, ""
            else:
                raise ScriptError(f"expected end of command {word.place}")
            # A menu that carries the command out itself knows its arguments.
            known = verb in self._menus[menu].actions or self._menus[menu].field(name, self._version) is not None
            if verb in _CHECKED and name not in _ALWAYS and not known:
                raise ScriptError(f"expected end of command {word.place}")
            given[name] = value
        return given

    def _parse_value(self, menu: str, part: Part) -> Value:
        if isinstance(part, WordGroup):
            raise ScriptError(f"variables and expressions are not emulated (line {part.line})")
        if isinstance(part, Block):
            return part.text
        return self._parse_find(menu, part) if isinstance(part, Sub) else part

    def _parse_find(self, within: str, sub: Sub) -> Find:
        scanner, words = Scanner(sub.text, sub.line), []
        while scanner.skip():
            words.append(scanner.word())
            menu, verb, _ = _ScriptReader(self._menus, self._version, within)._locate_command(words)
            if verb == "find":
                condition = scanner.rest.strip().removeprefix("where ")
                return Find(menu, find_where.parse(condition))
            if verb is not None:
                break
        raise ScriptError(f"only find is emulated in brackets (line {sub.line})")


def _require_one_word(first: Word, rest: list[Word]) -> Word:
    if len(rest) != 1 or rest[0].key is not None:
        raise ScriptError(f"syntax error {first.place}")
    return rest[0]


def _text_of_word(word: Word) -> str:
    if not isinstance(word.value, str):
        raise ScriptError(f"syntax error {word.place}")
    return word.value


def _seconds_of_word(word: Word) -> float:
    try:
        return durations.seconds(_text_of_word(word))
    except ValueError:
        raise ScriptError(f"invalid value for argument delay-time {word.place}") from None

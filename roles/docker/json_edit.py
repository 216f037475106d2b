"""Edit JSON text where a value differs and nowhere else: order, indentation and every other byte stay. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

INDENT = "  "
"""Indentation for a file without one."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class _Member:
    """One `"key": value` of an object, by its places in the text."""

    key: str
    start: int
    colon_from: int
    value_from: int
    end: int
    value: Any


def parse(text: str) -> dict[str, Any]:
    """Parse the object in a text; an empty text is an empty object, as for dockerd.

    Raises ValueError with the position for invalid JSON, for another type, or for a duplicate key: dockerd uses the
    last one, a reader sees the first one.
    """
    if not text.strip(" \t\r\n"):
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(value, dict):
            _check_duplicate_keys(text, _skip_space(text, 0))
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ValueError("is not JSON of a sane depth") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - a fault of the file, not of a call
    return value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with a value at a path of keys, objects on the way made where they are missing.

    Raises ValueError when something that is not an object stands in the way; null is one that is missing.
    """
    if not text.strip(" \t\r\n"):
        text = "{}\n"
    at = _skip_space(text, 0)
    for depth, key in enumerate(path):
        rest = _nest_value(path[depth + 1 :], value)
        members = _object_members(text, at)
        member = next((one for one in members if one.key == key), None)
        if member is None:
            return _insert_member(text, at, members, key, rest)
        last = depth == len(path) - 1
        if last or member.value is None:
            flat = bool(member.value) and "\n" not in text[member.value_from : member.end]
            written = json.dumps(rest) if flat else _written_json(rest, _space_before(text, member.start), text)
            return text[: member.value_from] + written + text[member.end :]
        if not isinstance(member.value, dict):
            raise ValueError(f"{' '.join(path[: depth + 1])} is not an object")  # noqa: TRY004 - as above
        at = member.value_from
    raise ValueError("no path")


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at a path of keys; unchanged when it is not there."""
    at = _skip_space(text, 0)
    for depth, key in enumerate(path):
        members = _object_members(text, at)
        place = next((number for number, one in enumerate(members) if one.key == key), None)
        if place is None:
            return text
        member = members[place]
        if depth < len(path) - 1:
            if not isinstance(member.value, dict):
                return text
            at = member.value_from
        elif place + 1 < len(members):
            return text[: member.start] + text[members[place + 1].start :]
        elif place:
            return text[: members[place - 1].end] + text[member.end :]
        else:
            return text[: at + 1] + text[member.end :]
    return text


def _insert_member(text: str, at: int, members: Sequence[_Member], key: str, value: Any) -> str:
    """A new member behind the last one, laid out like that."""
    if members:
        last = members[-1]
        space = _space_before(text, last.start)
        colon = text[last.colon_from : last.value_from]
        member = f"{json.dumps(key)}{colon}{_written_json(value, space, text)}"
        return f"{text[: last.end]},{space}{member}{text[last.end :]}"
    close = text.index("}", at)
    if "\n" not in text.strip() and text.strip() != "{}":
        return f"{text[: at + 1]}{json.dumps(key)}: {_written_json(value, '', text)}{text[close:]}"
    line = ("\r\n" if "\r\n" in text else "\n") + _leading_space(text, at)
    space = line + _member_indentation(text)
    return f"{text[: at + 1]}{space}{json.dumps(key)}: {_written_json(value, space, text)}{line}{text[close:]}"


def _leading_space(text: str, at: int) -> str:
    """The white space that the line of a place begins with."""
    start = text.rfind("\n", 0, at) + 1
    return text[start : min(at, _skip_space(text, start))]


def _written_json(value: Any, space: str, text: str) -> str:
    """A value as JSON whose lines follow the white space before its key."""
    if "\n" not in space:
        return json.dumps(value)
    lines = json.dumps(value, indent=_member_indentation(text)).split("\n")
    return space.join(lines) if len(lines) > 1 else lines[0]


def _member_indentation(text: str) -> str:
    """Return the indentation of the outermost members of an object."""
    at = _skip_space(text, 0)
    members = _object_members(text, at)
    space = _space_before(text, members[0].start) if members else ""
    return space.rpartition("\n")[2] or INDENT


def _space_before(text: str, at: int) -> str:
    """The white space before a place, from the last line break on."""
    start = at
    while start and text[start - 1] in " \t\r\n":
        start -= 1
    space = text[start:at]
    lines = re.findall(r"\r?\n[ \t]*", space)
    return lines[-1] if lines else space


def _nest_value(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _object_members(text: str, at: int) -> list[_Member]:
    """The members of the object that begins at a place in valid JSON."""
    found = []
    at = _skip_space(text, at + 1)
    while text[at] == '"':
        key, after = _DECODER.raw_decode(text, at)
        value_from = _skip_space(text, _skip_space(text, after) + 1)
        value, end = _DECODER.raw_decode(text, value_from)
        found.append(_Member(key, at, after, value_from, end, value))
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return found


def _check_duplicate_keys(text: str, at: int) -> None:
    """Raise ValueError for a key that an object has twice."""
    seen = set()
    for member in _object_members(text, at):
        if member.key in seen:
            line = text.count("\n", 0, member.start) + 1
            raise ValueError(f"{json.dumps(member.key)} is there twice, the second time in line {line}")
        seen.add(member.key)
        if isinstance(member.value, Mapping):
            _check_duplicate_keys(text, member.value_from)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is not a number")

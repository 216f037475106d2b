"""REST: a request as the command it means, and the command's answer as JSON (MikroTik manual, 'REST API').

The bodies of errors and how singletons, names and empty comments behave were reported from 7.23.7; what is
inferred is marked below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.rest_http import HttpRequest
from lab.routeros_emulator.sentence import Sentence


class RestError(Exception):
    """The request is answered with an error: a status, and RouterOS' words for it."""

    def __init__(self, status: HTTPStatus, detail: str | None = None) -> None:
        super().__init__(detail or status.phrase)
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class RestPlan:
    """The command a request means, and how its answer is shown.

    ``single``: one object in place of a list, and no rows are a 404. ``status`` is what success has.
    """

    sentence: Sentence
    single: bool = False
    status: HTTPStatus = HTTPStatus.OK


def plan(device: EmulatedDevice, request: HttpRequest) -> RestPlan:
    """Find what a request means. Raises RestError."""
    path = request.path[1:]
    if request.method == "GET":
        return _plan_get(device, path, request.query)
    if request.method == "POST":
        return _plan_post(device, path, _parse_body(request))
    if request.method == "PUT":
        menu = _find_menu(device, path)
        return RestPlan(_make_sentence(menu.path, "add", _parse_body(request)), single=True, status=HTTPStatus.CREATED)
    if request.method in ("PATCH", "DELETE"):
        return _plan_change(device, path, request)
    raise RestError(HTTPStatus.NOT_IMPLEMENTED)


def _plan_get(device: EmulatedDevice, path: tuple[str, ...], query: Iterable[tuple[str, str]]) -> RestPlan:
    words = []
    for name, value in query:
        words.append(f"={name}={value}" if name == ".proplist" else f"?{name}={value}")
    menu = device.menus.get(_join_path(path))
    if menu is not None:
        return RestPlan(_print_sentence(menu, words), single=menu.singleton)
    parent = device.menus.get(_join_path(path[:-1])) if path else None
    if parent is None:
        raise RestError(HTTPStatus.BAD_REQUEST, _describe_unknown_path(device, path))
    if path[-1] in parent.verbs or path[-1] in parent.actions:
        raise RestError(HTTPStatus.BAD_REQUEST, "no such command")
    return RestPlan(_print_sentence(parent, [*words, _query_for_row(parent, path[-1])]), single=True)


def _query_for_row(menu: EmulatedMenu, name: str) -> str:
    """The query that finds one row by its id or name."""
    if name.startswith("*"):
        return f"?.id={name}"
    if menu.named_by is None or menu.singleton:
        raise RestError(HTTPStatus.BAD_REQUEST, "no such command prefix")
    return f"?{menu.named_by}={name}"


def _plan_post(device: EmulatedDevice, path: tuple[str, ...], body: Mapping[str, object]) -> RestPlan:
    menu = _find_menu(device, path[:-1])
    queries = body.get(".query", [])
    if not isinstance(queries, list):
        raise RestError(HTTPStatus.BAD_REQUEST, "invalid .query")
    words = [f"?{word}" for word in queries]
    rest = {name: value for name, value in body.items() if name != ".query"}
    return RestPlan(_make_sentence(menu.path, path[-1], rest, words))


def _plan_change(device: EmulatedDevice, path: tuple[str, ...], request: HttpRequest) -> RestPlan:
    """PATCH and DELETE name a row in the path; a singleton has none, and is refused as was reported."""
    menu = device.menus.get(_join_path(path[:-1])) if path else None
    if menu is None or menu.singleton or _join_path(path) in device.menus:
        raise RestError(HTTPStatus.BAD_REQUEST, "missing or invalid resource identifier")
    if request.method == "DELETE":
        return RestPlan(_make_sentence(menu.path, "remove", {".id": path[-1]}), status=HTTPStatus.NO_CONTENT)
    return RestPlan(_make_sentence(menu.path, "set", _parse_body(request) | {".id": path[-1]}), single=True)


def _find_menu(device: EmulatedDevice, path: tuple[str, ...]) -> EmulatedMenu:
    menu = device.menus.get(_join_path(path))
    if menu is None:
        raise RestError(HTTPStatus.BAD_REQUEST, _describe_unknown_path(device, path))
    return menu


def _join_path(parts: tuple[str, ...]) -> str:
    """A menu's path, which is empty for the root."""
    return "".join(f"/{part}" for part in parts)


def _describe_unknown_path(device: EmulatedDevice, path: tuple[str, ...]) -> str:
    """Return the message for a path that is not a menu: its first unknown part."""
    for count in range(1, len(path) + 1):
        start = _join_path(path[:count])
        if not any(known == start or known.startswith(start + "/") for known in device.menus):
            return f"no such command or directory ({path[count - 1]})"
    return "no such command"


def _parse_body(request: HttpRequest) -> dict[str, object]:
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        raise RestError(HTTPStatus.BAD_REQUEST, "invalid JSON") from None
    if not isinstance(body, dict):
        raise RestError(HTTPStatus.BAD_REQUEST, "invalid JSON")
    return body


def _print_sentence(menu: EmulatedMenu, words: Sequence[str]) -> Sentence:
    queries = [word for word in words if word.startswith("?")]
    proplist = next((word.removeprefix("=.proplist=") for word in words if word.startswith("=.proplist=")), None)
    return _make_sentence(menu.path, "print", {} if proplist is None else {".proplist": proplist}, queries)


def look(menu: EmulatedMenu, number: str) -> Sentence:
    """The command that shows one row by its id."""
    return _print_sentence(menu, [f"?.id={number}"])


def _with_id(proplist: str) -> str:
    """Return the row with its id, which is always included; reported from 7.23.7."""
    return proplist if ".id" in proplist.split(",") else f".id,{proplist}"


def _make_sentence(menu: str, verb: str, given: Mapping[str, object], queries: Iterable[str] = ()) -> Sentence:
    attributes = {name: _format_value(value) for name, value in given.items()}
    if attributes.get(".proplist") and verb == "print":
        attributes[".proplist"] = _with_id(attributes[".proplist"])
    asked = tuple(queries)
    words = (f"{menu}/{verb}", *(f"={name}={value}" for name, value in attributes.items()), *asked)
    return Sentence(words, f"{menu}/{verb}", attributes, None, asked)


def _format_value(value: object) -> str:
    """A JSON value as an argument: null clears, a list is joined by commas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_format_value(part) for part in value)
    return str(value)

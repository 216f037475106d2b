"""Commands of the root, and /console/inspect: what this version knows, for clients that ask first.

Answers to ``child``: published answers of 7.24 units (a row with type ``self``, then the children). Which
node-type a menu has, and the form of ``syntax``, are inferred.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator import schema
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, missing, no_match, unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu, Values
from lab.routeros_emulator.request import Call, Reply

_REQUESTS = ("self", "child", "completion", "highlight", "syntax", "error")


def _inspect_path(call: Call) -> Reply:
    given = call.sentence.attributes
    for name in given:
        if name not in ("request", "path", "input", "as-value", "proplist", ".proplist", "without-paging"):
            raise unknown_parameter(name)
    request = given.get("request")
    if not request:
        raise missing("request")
    if request not in _REQUESTS:
        raise no_match("request")
    path = [part for part in given.get("path", "").split(",") if part]
    nodes = list(_list_nodes(call.device, path))
    if request == "child":
        return Reply(rows=nodes, listing=True)
    if request == "self":
        return Reply(rows=nodes[:1], listing=True)
    if request == "syntax":
        texts = [{"type": "syntax", "symbol": "", "symbol-type": "explanation", "text": path[-1] if path else ""}]
        return Reply(rows=texts if nodes else [], listing=True)
    raise failure(f"request={request} is not emulated")


def _list_nodes(device: EmulatedDevice, path: list[str]) -> Iterator[Values]:
    """A node and its children; nothing when there is no such node."""
    known = {menu: commands for menu, commands in schema.tree().items() if menu in device.menus}
    at = "".join(f"/{part}" for part in path)
    below = sorted({menu[len(at) + 1 :].split("/")[0] for menu in known if menu.startswith(f"{at}/")})
    if at in known or below:
        commands = known.get(at, {})
        yield _make_node(path[-1] if path else "", "path" if commands else "dir", "self")
        yield from (_make_node(name, "path" if known.get(f"{at}/{name}") else "dir", "child") for name in below)
        yield from (_make_node(name, "cmd", "child") for name in sorted(commands))
        return
    menu, _, verb = at.rpartition("/")
    if verb in known.get(menu, {}):
        yield _make_node(verb, "cmd", "self")
        yield from (_make_node(name, "arg", "child") for name in arguments(device, menu, verb))
        return
    above, _, command = menu.rpartition("/")
    if command in known.get(above, {}) and verb in arguments(device, above, command):
        yield _make_node(verb, "arg", "self")


def arguments(device: EmulatedDevice, path: str, verb: str) -> list[str]:
    """The arguments of a command in the version that runs: fields come and go and change their names."""
    menu = device.menus[path]
    names = set(schema.tree()[path][verb])
    if verb in ("add", "set"):
        for item in menu.fields:
            names -= {item.name, *([item.renamed[1]] if item.renamed else [])}
            spelling = item.spelling(device.version)
            names |= {spelling} if spelling is not None and not item.fixed else set()
    return sorted(names)


def _make_node(name: str, kind: str, role: str) -> Values:
    return {"type": role, "name": name, "node-type": kind}


CONSOLE = EmulatedMenu("/console", verbs=frozenset(), rows=lambda _device: (), actions={"inspect": _inspect_path})
ROOT = EmulatedMenu("", verbs=frozenset(), rows=lambda _device: ())

"""From a sentence to its handler."""

from __future__ import annotations

from . import reading, writing
from .call import Call, Client, Handler, Reply, Stream
from .device import Device
from .errors import MISSING_ITEM, TrapError
from .sentence import Sentence
from .streams import listen

_VERBS: dict[str, Handler] = {
    "print": reading.print_rows,
    "getall": reading.print_rows,
    "get": reading.get_value,
    "listen": listen,
    "add": writing.add,
    "set": writing.change,
    "unset": writing.unset,
    "enable": writing.enable,
    "disable": writing.disable,
    "remove": writing.remove,
}
_WRITES = frozenset({"add", "set", "unset", "enable", "disable", "remove"})


def is_write(verb: str) -> bool:
    """Say whether a command is meant to change a table."""
    return verb in _WRITES


def dispatch(device: Device, client: Client, sentence: Sentence) -> Reply | Stream:
    """Carry out a command. Raises TrapError when it is refused."""
    menu = device.menus.get(sentence.menu)
    if menu is None:
        raise TrapError("no such command prefix", MISSING_ITEM)
    handler = menu.actions.get(sentence.verb)
    if handler is None and sentence.verb in menu.verbs:
        handler = _VERBS[sentence.verb]
    if handler is None:
        raise TrapError("no such command", MISSING_ITEM)
    if client.group == "read" and (is_write(sentence.verb) or sentence.verb in menu.protected):
        raise TrapError("not enough permissions (9)")
    return handler(Call(device, client, menu, sentence))

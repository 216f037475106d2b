"""From a sentence to its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import permissions, reading, writing
from .call import Call, Client, Handler, Reply, Stream
from .errors import MISSING_ITEM, TrapError
from .export import export
from .sentence import Sentence
from .streams import listen

if TYPE_CHECKING:
    from .device import Device

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

#: Verbs beyond those of tables that leave something behind.
_MAKES = frozenset({"sign"})


def is_write(verb: str) -> bool:
    """Say whether a command is meant to change a table or to make something that stays."""
    return verb in permissions.WRITES or verb in _MAKES


def dispatch(device: Device, client: Client, sentence: Sentence) -> Reply | Stream:
    """Carry out a command. Raises TrapError when it is refused."""
    menu = device.menus.get(sentence.menu)
    if menu is None:
        raise TrapError("no such command prefix", MISSING_ITEM)
    handler = menu.actions.get(sentence.verb)
    if handler is None and sentence.verb in menu.verbs:
        handler = _VERBS[sentence.verb]
    if handler is None and sentence.verb == "export":
        handler = export
    if handler is None:
        raise TrapError("no such command", MISSING_ITEM)
    permissions.require(device, client, menu, sentence.verb)
    return handler(Call(device, client, menu, sentence))

"""Dispatch of sentences to their handlers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lab.routeros_emulator import permissions, print_verbs, write_verbs
from lab.routeros_emulator.errors import MISSING_ITEM, TrapError
from lab.routeros_emulator.export import export
from lab.routeros_emulator.request import Call, Handler, Reply, RequestClient, Stream
from lab.routeros_emulator.sentence import Sentence, parse

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

#: Number of the session of another administrator; those of connections begin with 1.
_ADMINISTRATOR = 0

_VERBS: dict[str, Handler] = {
    "print": print_verbs.print_rows,
    "getall": print_verbs.print_rows,
    "get": print_verbs.get_value,
    "add": write_verbs.add,
    "set": write_verbs.change,
    "unset": write_verbs.unset,
    "enable": write_verbs.enable,
    "disable": write_verbs.disable,
    "remove": write_verbs.remove,
}

#: Verbs beyond those of tables that have an effect.
_MAKES = frozenset({"sign", "fetch", "reboot", "apply-changes", "upgrade"})


def is_write(verb: str) -> bool:
    """Say whether a command is meant to change a table or to make something that stays."""
    return verb in permissions.WRITES or verb in _MAKES


def dispatch(device: EmulatedDevice, client: RequestClient, sentence: Sentence) -> Reply | Stream:
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


def give_as_administrator(device: EmulatedDevice, sentences: Iterable[Sequence[str]]) -> None:
    """Let another administrator give commands, in a WinBox session that stays open: test knob."""
    client = device.clients.get(_ADMINISTRATOR)
    if client is None:
        client = RequestClient(_ADMINISTRATOR, "admin", "full", "192.0.2.200", "winbox", device.clock.stamp())
        device.clients[_ADMINISTRATOR] = client
    for words in sentences:
        with suppress(TrapError):
            dispatch(device, client, parse(list(words)))

"""listen: rows as they change, until the command is cancelled."""

from __future__ import annotations

import asyncio

from lab.routeros_emulator.errors import unknown_parameter
from lab.routeros_emulator.menu import EmulatedRow, Values, spell_id
from lab.routeros_emulator.permissions import held
from lab.routeros_emulator.print_verbs import narrow, view
from lab.routeros_emulator.query import matches
from lab.routeros_emulator.request import Call, Reply, Stream
from lab.routeros_emulator.store import StoreAction


def listen(call: Call) -> Reply | Stream:
    """Return each row of the menu that is added, changed or removed from now on.

    A removed row comes as its id with ``.dead=true``. Links that come up change no stored row and are not reported;
    that RouterOS reports them is not emulated.
    """
    for name in call.sentence.attributes:
        if name not in ("proplist", ".proplist"):
            raise unknown_parameter(name)
    queue: asyncio.Queue[Values] = asyncio.Queue()

    def hear(action: StoreAction) -> None:
        for change in action.changes:
            if change.path != call.menu.path:
                continue
            if change.after is None:
                queue.put_nowait({".id": spell_id(change.id), ".dead": "true"})
                continue
            sensitive = "sensitive" in held(call.device, call.client)
            row = view(call.device, call.menu, EmulatedRow(change.id, change.after), sensitive=sensitive)
            if matches(row, call.sentence.queries):
                queue.put_nowait(narrow(row, call.sentence.attributes))

    # Subscribed at once and not when the first row is awaited: nothing between may be missed.
    call.device.store.observers.append(hear)

    async def rows() -> Stream:
        try:
            while True:
                yield await queue.get()
        finally:
            call.device.store.observers.remove(hear)

    return rows()

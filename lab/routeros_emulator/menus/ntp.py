"""/system/ntp/client and its servers: one list seen from two sides. No time is asked for over the network; the clock
moves when there is a server, if the configuration says so.

Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. That a write of
``servers`` replaces the rows is inferred from the two always agreeing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from lab.routeros_emulator import write_verbs
from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError
from lab.routeros_emulator.menu import EDIT, FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.request import Call, Reply
from lab.routeros_emulator.store import StoreAction, StoreChange

CLIENT, SERVERS = "/system/ntp/client", "/system/ntp/client/servers"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_")


@dataclass(frozen=True)
class Host:
    """An address or a host name."""

    def parse(self, argument: str, text: str) -> str:
        if not text or not _ALLOWED.issuperset(text):
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE)
        return text


CLIENT_FIELDS = (
    EmulatedField("enabled", Bool(), "false"),
    EmulatedField("mode", Enum(("unicast", "broadcast", "multicast", "manycast")), "unicast"),
    EmulatedField("vrf", Text(), "main"),
)
SERVER_FIELDS = (
    EmulatedField("address", Host(), required=True),
    EmulatedField("iburst", Bool(), "true"),
    EmulatedField("min-poll", Integer(3, 17), "6"),
    EmulatedField("max-poll", Integer(3, 17), "10"),
    EmulatedField("auth-key", Enum(("none",)), "none"),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in CLIENT_FIELDS}


def _list_servers(device: EmulatedDevice) -> list[EmulatedRow]:
    return [row for row in device.store.rows(SERVERS) if row.values["disabled"] == "false"]


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    servers = ",".join(server.values["address"] for server in _list_servers(device))
    status = "waiting" if row.values["enabled"] == "true" else "stopped"
    return {"servers": servers, "freq-drift": "0", "status": status}


def _set_servers(call: Call) -> Reply:
    given = dict(call.sentence.attributes)
    wanted = given.pop("servers", None)
    addresses = [Host().parse("servers", part) for part in (wanted or "").split(",") if part]
    if given:
        write_verbs.change(replace(call, sentence=replace(call.sentence, attributes=given)))
    store = call.device.store
    old = list(store.rows(SERVERS))
    if wanted is not None and addresses != [row.values["address"] for row in old]:
        defaults = {item.name: item.default for item in SERVER_FIELDS if item.default is not None}
        rows = [defaults | {"address": address} for address in addresses]
        gone = [StoreChange(SERVERS, row.id, row.values, None) for row in old]
        come = [StoreChange(SERVERS, store.new_id(SERVER_MENU), None, values) for values in rows]
        action = "system ntp client changed"
        store.apply(StoreAction(action, call.client.owner, call.device.clock.stamp(), (*gone, *come)))
    _synchronize_clock(call.device)
    return Reply()


def _synchronize_clock(device: EmulatedDevice) -> None:
    """A time server answers at once: the clock moves as far as the configuration names, once for each start."""
    (client,) = device.store.rows(CLIENT)
    if device.config.ntp_moves and not device.clock.synchronized and client.values["enabled"] == "true":
        if not _list_servers(device):
            return
        device.clock.synchronized = True
        device.clock.shift += timedelta(seconds=device.config.ntp_moves)
        device.schedule.clock_moved()


CLIENT_MENU = EmulatedMenu(
    CLIENT,
    CLIENT_FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory_rows,
    show=_show_row,
    actions={"set": _set_servers},
)
SERVER_MENU = EmulatedMenu(
    SERVERS,
    SERVER_FIELDS,
    verbs=FULL,
    show=lambda _device, row: {"dynamic": "false", "resolved-address": row.values["address"]},
)

"""/system/ntp/client and its servers: one list seen from two sides. No time is asked for over the network.

Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. That a write of
``servers`` replaces the rows is inferred from the two always agreeing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import writing
from ..call import Call, Reply
from ..device import Device
from ..errors import ARGUMENT_VALUE, TrapError
from ..kinds import Bool, Enum, Integer, Text
from ..menu import EDIT, FULL, Field, Menu, Row, Values
from ..store import Action, Change

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
    Field("enabled", Bool(), "false"),
    Field("mode", Enum(("unicast", "broadcast", "multicast", "manycast")), "unicast"),
    Field("vrf", Text(), "main"),
)
SERVER_FIELDS = (
    Field("address", Host(), required=True),
    Field("iburst", Bool(), "true"),
    Field("min-poll", Integer(3, 17), "6"),
    Field("max-poll", Integer(3, 17), "10"),
    Field("auth-key", Enum(("none",)), "none"),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
)


def _factory(_device: Device) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in CLIENT_FIELDS}


def _servers(device: Device) -> list[Row]:
    return [row for row in device.store.rows(SERVERS) if row.values["disabled"] == "false"]


def _show(device: Device, row: Row) -> Values:
    servers = ",".join(server.values["address"] for server in _servers(device))
    status = "waiting" if row.values["enabled"] == "true" else "stopped"
    return {"servers": servers, "freq-drift": "0", "status": status}


def _set(call: Call) -> Reply:
    given = dict(call.sentence.attributes)
    wanted = given.pop("servers", None)
    addresses = [Host().parse("servers", part) for part in (wanted or "").split(",") if part]
    if given:
        writing.change(replace(call, sentence=replace(call.sentence, attributes=given)))
    store = call.device.store
    old = list(store.rows(SERVERS))
    if wanted is not None and addresses != [row.values["address"] for row in old]:
        defaults = {item.name: item.default for item in SERVER_FIELDS if item.default is not None}
        rows = [defaults | {"address": address} for address in addresses]
        gone = [Change(SERVERS, row.id, row.values, None) for row in old]
        come = [Change(SERVERS, store.new_id(SERVER_MENU), None, values) for values in rows]
        action = "system ntp client changed"
        store.apply(Action(action, call.client.owner, call.device.clock.stamp(), (*gone, *come)))
    return Reply()


CLIENT_MENU = Menu(
    CLIENT,
    CLIENT_FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory,
    show=_show,
    actions={"set": _set},
)
SERVER_MENU = Menu(
    SERVERS,
    SERVER_FIELDS,
    verbs=FULL,
    show=lambda _device, row: {"dynamic": "false", "resolved-address": row.values["address"]},
)

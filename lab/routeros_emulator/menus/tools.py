"""/tool/mac-server and /tool/bandwidth-server: kept and printed; no such server runs here.

Arguments: MikroTik manual, 'MAC server' and 'Bandwidth Test'; defaults: published verbose exports of 7.x units.
"""

from __future__ import annotations

from lab.routeros_emulator.argument_types import Bool, Integer, Prefixes, Reference
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu
from lab.routeros_emulator.menus.lists import LIST


def _make_singleton(path: str, *fields: EmulatedField) -> EmulatedMenu:
    values = {item.name: item.default for item in fields if item.default is not None}
    return EmulatedMenu(path, fields, verbs=EDIT, singleton=True, factory=lambda _device: [values])


MAC_SERVER = _make_singleton("/tool/mac-server", EmulatedField("allowed-interface-list", Reference((LIST,)), "all"))
MAC_WINBOX = _make_singleton(
    "/tool/mac-server/mac-winbox", EmulatedField("allowed-interface-list", Reference((LIST,)), "all")
)
MAC_PING = _make_singleton("/tool/mac-server/ping", EmulatedField("enabled", Bool(), "true"))
BANDWIDTH_SERVER = _make_singleton(
    "/tool/bandwidth-server",
    EmulatedField("enabled", Bool(), "true"),
    EmulatedField("authenticate", Bool(), "true"),
    EmulatedField("allocate-udp-ports-from", Integer(1000, 64000), "2000"),
    EmulatedField("max-sessions", Integer(1, 1000), "100"),
    EmulatedField("allowed-addresses4", Prefixes(), ""),
    EmulatedField("allowed-addresses6", Prefixes(), ""),
)

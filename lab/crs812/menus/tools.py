"""/tool/mac-server and /tool/bandwidth-server: kept and printed; no such server runs here.

Arguments: MikroTik manual, 'MAC server' and 'Bandwidth Test'; defaults: published verbose exports of 7.x units.
"""

from __future__ import annotations

from ..kinds import Bool, Integer, Prefixes, Reference
from ..menu import EDIT, Field, Menu
from .lists import LIST


def _singleton(path: str, *fields: Field) -> Menu:
    values = {item.name: item.default for item in fields if item.default is not None}
    return Menu(path, fields, verbs=EDIT, singleton=True, factory=lambda _device: [values])


MAC_SERVER = _singleton("/tool/mac-server", Field("allowed-interface-list", Reference((LIST,)), "all"))
MAC_WINBOX = _singleton("/tool/mac-server/mac-winbox", Field("allowed-interface-list", Reference((LIST,)), "all"))
MAC_PING = _singleton("/tool/mac-server/ping", Field("enabled", Bool(), "true"))
BANDWIDTH_SERVER = _singleton(
    "/tool/bandwidth-server",
    Field("enabled", Bool(), "true"),
    Field("authenticate", Bool(), "true"),
    Field("allocate-udp-ports-from", Integer(1000, 64000), "2000"),
    Field("max-sessions", Integer(1, 1000), "100"),
    Field("allowed-addresses4", Prefixes(), ""),
    Field("allowed-addresses6", Prefixes(), ""),
)

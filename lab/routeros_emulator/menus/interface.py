"""/interface: every interface in one list, to read."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.device import BONDING, BRIDGE, ETHERNET, EmulatedDevice
from lab.routeros_emulator.menu import EmulatedMenu, Values
from lab.routeros_emulator.print_verbs import listing

#: Menus whose rows are interfaces, with the word that ``type`` shows.
_TYPES = ((ETHERNET, "ether"), (BRIDGE, "bridge"), (BONDING, "bond"))
_SHOWN = (
    ".id",
    "name",
    "default-name",
    "comment",
    "mtu",
    "actual-mtu",
    "l2mtu",
    "mac-address",
    "running",
    "slave",
)


def _list_rows(device: EmulatedDevice) -> Iterator[Values]:
    for path, kind in _TYPES:
        for row in listing(device, device.menus[path]):
            shown = {name: row[name] for name in _SHOWN if name in row}
            shown |= {"type": kind, "disabled": row["disabled"], "dynamic": "false"}
            shown.setdefault("actual-mtu", row["mtu"])
            if name := row.get("default-name"):
                shown["max-l2mtu"] = str(device.hardware.by_name[name].max_l2mtu)
                shown["link-downs"] = str(device.links.downs[name])
                if went := device.links.went_down.get(name):
                    shown["last-link-down-time"] = went
            yield shown


INTERFACE = EmulatedMenu("/interface", named_by="name", rows=_list_rows)

"""/interface/bonding. Arguments and words: schema of RouterOS 7.23; defaults: MikroTik manual, 'Bonding'.

A slave is a port of a bridge only through its bond, and has one bond (MikroTik manual: a bond's slaves are used by the
bond alone); how a refusal is worded is inferred. The bond itself has a link while one of its slaves has.
"""

from __future__ import annotations

from lab.routeros_emulator.argument_types import Bool, Duration, Enum, Integer, Mac, Reference, Text
from lab.routeros_emulator.device import BONDING as PATH
from lab.routeros_emulator.device import ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values

_MODES = ("802.3ad", "active-backup", "balance-alb", "balance-rr", "balance-tlb", "balance-xor", "broadcast")
_HASHES = ("encap-2-and-3", "encap-3-and-4", "layer-2", "layer-2-and-3", "layer-3-and-4")

FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("mtu", Integer(68, 65535), "1500"),
    EmulatedField("arp", Enum(("disabled", "enabled", "local-proxy-arp", "proxy-arp", "reply-only")), "enabled"),
    EmulatedField("arp-timeout", Duration(words=("auto",)), "auto"),
    EmulatedField("slaves", Reference((ETHERNET,), many=True), required=True),
    EmulatedField("mode", Enum(_MODES), "balance-rr"),
    EmulatedField("primary", Text(), "none"),
    EmulatedField("link-monitoring", Enum(("arp", "mii", "none")), "mii"),
    EmulatedField("arp-interval", Duration(), "100ms"),
    EmulatedField("arp-ip-targets", Text(), ""),
    EmulatedField("mii-interval", Duration(), "100ms"),
    EmulatedField("down-delay", Duration(), "0s"),
    EmulatedField("up-delay", Duration(), "0s"),
    EmulatedField("lacp-mode", Enum(("active", "passive")), "active"),
    EmulatedField("lacp-rate", Enum(("1sec", "30secs")), "30secs"),
    EmulatedField("transmit-hash-policy", Enum(_HASHES), "layer-2"),
    EmulatedField("min-links", Integer(), "0"),
    EmulatedField("forced-mac-address", Mac(), clears=True),
    EmulatedField("mlag-id", Integer(1, 65535), clears=True),
)


# claim: switch.bond.refusals
def _check_row(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    slaves = row.values["slaves"].split(",")
    if not row.values["slaves"]:
        raise failure("at least one slave is needed")
    if row.values["disabled"] == "true":
        return
    for other in device.store.rows(PATH):
        taken = set(other.values["slaves"].split(",")) & set(slaves)
        if other.id != row.id and other.values["disabled"] == "false" and taken:
            raise failure(f"{min(taken)} is already slave of {other.values['name']}")
    for slave in slaves:
        if device.bridge_port(slave):
            raise failure(f"{slave} is a bridge port and can not be a slave")


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    ports = [port.values for name in row.values["slaves"].split(",") if (port := device.store.find(ETHERNET, name))]
    runs = row.values["disabled"] == "false" and device.runs(row.values["name"])
    shown = {"running": "true" if runs else "false"}
    return shown | ({"mac-address": ports[0]["mac-address"]} if ports else {})


BONDING = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=FULL | {"unset"},
    named_by="name",
    unique=((("name",), "already have interface with such name"),),
    pool="interface",
    show=_show_row,
    check=_check_row,
    unsets=frozenset({"forced-mac-address", "mlag-id"}),
)

"""/interface/ethernet: the sub-interfaces.

Arguments: schema of RouterOS 7.23; defaults: MikroTik manual, 'Ethernet'.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Duration, Enum, Integer, Mac, Text, Words
from lab.routeros_emulator.counters import COUNTERS
from lab.routeros_emulator.device import ETHERNET as PATH
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError, failure
from lab.routeros_emulator.link_modes import supported
from lab.routeros_emulator.menu import SWITCHABLE, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.monitor import default_name, monitor, named_ports
from lab.routeros_emulator.ports import FIRST_ID, EmulatedPort
from lab.routeros_emulator.request import Call, Reply

_WORDS = """
    10M-baseT-half 10M-baseT-full 100M-baseT-half 100M-baseT-full 1G-baseT-half 1G-baseT-full
    10G-baseT 2.5G-baseT 2.5G-baseX 5G-baseT 40G-baseCR4 40G-baseSR4-LR4 25G-baseCR 25G-baseSR-LR
    50G-baseCR2 100G-baseSR4-LR4 100G-baseCR4 50G-baseSR2-LR2 1G-baseX 10G-baseCR 10G-baseSR-LR
    50G-baseSR-LR 50G-baseCR 100G-baseSR2-LR2 100G-baseCR2 200G-baseSR4-LR4 200G-baseCR4
    400G-baseSR8-LR8 400G-baseCR8 100M-baseFX-half 100M-baseFX-full
"""
#: Every word of ``speed`` and ``advertise`` (MikroTik manual, 'Ethernet').
SPEEDS = tuple(_WORDS.split())
_FLOW = Enum(("off", "on", "auto"))

FIELDS = (
    EmulatedField("name", Text()),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("mtu", Integer(68, 65535), "1500"),
    # claim: switch.l2mtu.factory
    EmulatedField("l2mtu", Integer(68, 65535), "1584"),
    EmulatedField("mac-address", Mac()),
    EmulatedField("orig-mac-address", Mac()),
    EmulatedField("arp", Enum(("disabled", "enabled", "local-proxy-arp", "proxy-arp", "reply-only")), "enabled"),
    EmulatedField("arp-timeout", Duration(words=("auto",)), "auto"),
    EmulatedField("auto-negotiation", Bool(), "true"),
    EmulatedField("advertise", Words(SPEEDS), clears=True),
    EmulatedField("speed", Enum(SPEEDS)),
    EmulatedField("fec-mode", Enum(("auto", "off", "fec74", "fec91")), "auto"),
    EmulatedField("tx-flow-control", _FLOW, "off"),
    EmulatedField("rx-flow-control", _FLOW, "off"),
    EmulatedField("bandwidth", Text(), "unlimited/unlimited"),
    EmulatedField("cable-settings", Enum(("default", "short", "standard")), "default"),
    EmulatedField("combo-mode", Enum(("auto", "copper", "sfp"))),
    EmulatedField("disable-running-check", Bool(), "true"),
    EmulatedField("loop-protect", Enum(("default", "off", "on")), "default"),
    EmulatedField("loop-protect-disable-time", Duration(), "5m"),
    EmulatedField("loop-protect-send-interval", Duration(low=1), "5s"),
    EmulatedField("mdix-enable", Bool(), "true"),
    EmulatedField("sfp-ignore-rx-los", Bool(), "false"),
    EmulatedField("sfp-rate-select", Enum(("low", "high")), "high"),
    EmulatedField("sfp-shutdown-temperature", Integer(0, 200), "95"),
)

#: Fields that twisted-pair ports do not show, and fields that only they show; inferred from their names.
_CAGE_ONLY = ("fec-mode", "sfp-ignore-rx-los", "sfp-rate-select", "sfp-shutdown-temperature")
_TWISTED_ONLY = ("cable-settings", "mdix-enable", "disable-running-check")


def _factory_rows(device: EmulatedDevice) -> Iterator[Values]:
    for port in device.hardware.ports:
        absent = _CAGE_ONLY if port.kind == "ether" else _TWISTED_ONLY
        values = {f.name: f.default for f in FIELDS if f.default is not None and f.name not in absent}
        address = device.hardware.mac(device.config.serial, port)
        values |= {"name": port.name, "default-name": port.name, "advertise": _advertised_speeds(port)}
        yield values | {"mac-address": address, "orig-mac-address": address}


def _advertised_speeds(port: EmulatedPort) -> str:
    return Words(SPEEDS).parse("advertise", ",".join(supported(port.kind)))


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    name = row.values["default-name"]
    unchanged = device.unchanged_link(name)
    running = "true" if device.links.status(name).running else "false"
    shown = {
        "switch": "switch1",
        "running": unchanged.running if unchanged else running,
        "slave": "true" if device.membership(row.values["name"]) else "false",
        "loop-protect-status": "off",
    }
    return shown | _move_counters(device, name)


_BYTES = tuple(counter for counter in COUNTERS if counter.endswith("-bytes"))
#: Frames in a millisecond on a leg that is in use: 8 Gb/s of 1000 bytes each.
_FRAMES = 1000


def _move_counters(device: EmulatedDevice, name: str) -> Values:
    """Traffic never stands still on a real unit, and a PAM4 link is never without corrected errors (inferred):
    a client that compares all counters must notice."""
    moving = dict.fromkeys(_BYTES, 1)
    if _is_pam4(device, name):
        moving["rs-fec-corrected"] = 1
    if not device.chip.quiet:
        moving["rx-packet"] = _FRAMES
        if name in device.chip.stale:
            moving["driver-rx-packet"] = _FRAMES
    ticks = device.clock.ticks() if device.links.status(name).running else 0
    return {counter: str(ticks * moving.get(counter, 0) + device.chip.counter(name, counter)) for counter in COUNTERS}


def _is_pam4(device: EmulatedDevice, name: str) -> bool:
    mode = device.links.status(name).mode
    return mode is not None and mode.pam4


def _reset_counters(call: Call) -> Reply:
    """Carry out reset-counters: the counters of the ports that ``numbers`` names begin at 0."""
    for name in named_ports(call):
        call.device.chip.reset(default_name(call.device, name))
    return Reply()


def _check_row(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    port = device.hardware.by_name[row.values["default-name"]]
    if int(row.values["l2mtu"]) > port.max_l2mtu:
        # That it is refused is certain (the manual gives the limit); the wording is inferred.
        raise TrapError(f"value of l2mtu out of range (68..{port.max_l2mtu})", ARGUMENT_VALUE)
    if int(row.values["mtu"]) > int(row.values["l2mtu"]):
        raise failure("could not set mtu")
    if not row.values["name"]:
        raise failure("name can not be empty")


ETHERNET = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=SWITCHABLE | {"unset"},
    named_by="name",
    unique=((("name",), "already have interface with such name"),),
    pool="interface",
    first_id=FIRST_ID,
    factory=_factory_rows,
    show=_show_row,
    check=_check_row,
    sort=lambda row: row.values["name"],
    actions={"monitor": monitor, "reset-counters": _reset_counters},
    protected=frozenset({"reset-counters"}),
    unsets=frozenset({"sfp-shutdown-temperature"}),
)

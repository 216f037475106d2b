"""/interface/ethernet: the 34 sub-interfaces.

Arguments: schema of RouterOS 7.23; defaults: MikroTik manual, 'Ethernet'.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..call import Call, Reply
from ..counters import COUNTERS
from ..device import ETHERNET as PATH
from ..device import Device
from ..errors import ARGUMENT_VALUE, TrapError, failure
from ..kinds import Bool, Duration, Enum, Integer, Mac, Text, Words
from ..menu import SWITCHABLE, Field, Menu, Row, Values
from ..modes import supported
from ..monitor import default_name, monitor, named_ports
from ..ports import FIRST_ID, PORT, PORTS, Port, mac

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
    Field("name", Text()),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("mtu", Integer(68, 65535), "1500"),
    Field("l2mtu", Integer(68, 65535), "1584"),
    Field("mac-address", Mac()),
    Field("orig-mac-address", Mac()),
    Field("arp", Enum(("disabled", "enabled", "local-proxy-arp", "proxy-arp", "reply-only")), "enabled"),
    Field("arp-timeout", Duration(words=("auto",)), "auto"),
    Field("auto-negotiation", Bool(), "true"),
    Field("advertise", Words(SPEEDS), clears=True),
    Field("speed", Enum(SPEEDS)),
    Field("fec-mode", Enum(("auto", "off", "fec74", "fec91")), "auto"),
    Field("tx-flow-control", _FLOW, "off"),
    Field("rx-flow-control", _FLOW, "off"),
    Field("bandwidth", Text(), "unlimited/unlimited"),
    Field("cable-settings", Enum(("default", "short", "standard")), "default"),
    Field("combo-mode", Enum(("auto", "copper", "sfp"))),
    Field("disable-running-check", Bool(), "true"),
    Field("loop-protect", Enum(("default", "off", "on")), "default"),
    Field("loop-protect-disable-time", Duration(), "5m"),
    Field("loop-protect-send-interval", Duration(low=1), "5s"),
    Field("mdix-enable", Bool(), "true"),
    Field("sfp-ignore-rx-los", Bool(), "false"),
    Field("sfp-rate-select", Enum(("low", "high")), "high"),
    Field("sfp-shutdown-temperature", Integer(0, 200), "95"),
)

#: Fields that twisted-pair ports do not show, and fields that only they show; inferred from their names.
_CAGE_ONLY = ("fec-mode", "sfp-ignore-rx-los", "sfp-rate-select", "sfp-shutdown-temperature")
_TWISTED_ONLY = ("cable-settings", "mdix-enable", "disable-running-check")


def _factory(device: Device) -> Iterator[Values]:
    for port in PORTS:
        absent = _CAGE_ONLY if port.kind == "ether" else _TWISTED_ONLY
        values = {f.name: f.default for f in FIELDS if f.default is not None and f.name not in absent}
        address = mac(device.config.serial, port)
        values |= {"name": port.name, "default-name": port.name, "advertise": _advertised(port)}
        yield values | {"mac-address": address, "orig-mac-address": address}


def _advertised(port: Port) -> str:
    return Words(SPEEDS).parse("advertise", ",".join(supported(port.kind)))


def _show(device: Device, row: Row) -> Values:
    name = row.values["default-name"]
    status = device.links.status(name)
    shown = {
        "switch": "switch1",
        "running": "true" if status.running else "false",
        "slave": "true" if device.membership(row.values["name"]) else "false",
        "loop-protect-status": "off",
    }
    return shown | {counter: _count(device, name, counter) for counter in COUNTERS}


#: Frames in a millisecond on a leg that is in use: 8 Gb/s of 1000 bytes each.
_FRAMES = 1000


def _count(device: Device, name: str, counter: str) -> str:
    """Traffic never stands still on a real unit, and a PAM4 link is never without corrected errors (inferred):
    a client that compares all counters must notice."""
    moving = counter.endswith("-bytes") or (counter == "rs-fec-corrected" and _pam4(device, name))
    frames = counter == "rx-packet" or (counter == "driver-rx-packet" and name in device.chip.stale)
    frames = frames and not device.chip.quiet
    ticks = device.clock.ticks() if (moving or frames) and device.links.status(name).running else 0
    return str(ticks * (_FRAMES if frames else 1) + device.chip.counter(name, counter))


def _pam4(device: Device, name: str) -> bool:
    mode = device.links.status(name).mode
    return mode is not None and mode.pam4


def _reset_counters(call: Call) -> Reply:
    """Carry out reset-counters: the counters of the ports that ``numbers`` names begin at 0."""
    for name in named_ports(call):
        call.device.chip.reset(default_name(call.device, name))
    return Reply()


def _check(_device: Device, row: Row, _old: Row | None) -> None:
    port = PORT[row.values["default-name"]]
    if int(row.values["l2mtu"]) > port.max_l2mtu:
        # That it is refused is certain (the manual gives the limit); the wording is inferred.
        raise TrapError(f"value of l2mtu out of range (68..{port.max_l2mtu})", ARGUMENT_VALUE)
    if int(row.values["mtu"]) > int(row.values["l2mtu"]):
        raise failure("could not set mtu")
    if not row.values["name"]:
        raise failure("name can not be empty")


ETHERNET = Menu(
    PATH,
    FIELDS,
    verbs=SWITCHABLE | {"unset", "listen"},
    named_by="name",
    unique=((("name",), "already have interface with such name"),),
    pool="interface",
    first_id=FIRST_ID,
    factory=_factory,
    show=_show,
    check=_check,
    sort=lambda row: row.values["name"],
    actions={"monitor": monitor, "reset-counters": _reset_counters},
    protected=frozenset({"reset-counters"}),
    unsets=frozenset({"sfp-shutdown-temperature"}),
)

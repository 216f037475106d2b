"""/interface/ethernet/monitor: what a link does now.

Fields: MikroTik manual, 'Ethernet', 'Monitor'. What companion lanes and lanes without a link show is not
documented; inferred: ``no-link`` without ``rate``, ``full-duplex`` and ``fec``, with the module's fields on
every lane of a cage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from lab.routeros_emulator import durations
from lab.routeros_emulator.device import ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError, missing, no_such_item, unknown_parameter
from lab.routeros_emulator.link_modes import rate, supported
from lab.routeros_emulator.menu import Values
from lab.routeros_emulator.ports import EmulatedPort
from lab.routeros_emulator.print_verbs import listing, narrow, pick
from lab.routeros_emulator.request import Call, Reply, Stream

_NUMBERS = frozenset({"numbers", ".id"})
#: What shapes the answer of any monitor.
SHAPING = frozenset({"once", "interval", "proplist", ".proplist", "as-value", "without-paging"})
_KNOWN = _NUMBERS | SHAPING
_LINK = "name status auto-negotiation rate full-duplex tx-flow-control rx-flow-control fec advertising"
#: Fields of the link, not of the plugged module.
OF_LINK = tuple(_LINK.split())


def monitor(call: Call) -> Reply | Stream:
    """Give one row per interface: once, or every ``interval`` (default 1s) until cancelled."""
    names = [default_name(call.device, name) for name in named_ports(call, _KNOWN)]
    return watch(call.sentence.attributes, lambda: [_show_link(call.device, name) for name in names])


def named_ports(call: Call, known: Container[str] = _NUMBERS) -> list[str]:
    """The names of the rows that ``numbers`` means; TrapError for an argument that is not known."""
    given = call.sentence.attributes
    for name in given:
        if name not in known:
            raise unknown_parameter(name)
    numbers = given.get("numbers") or given.get(".id")
    if not numbers:
        raise missing("numbers")
    rows = list(listing(call.device, call.menu))
    names = {row["name"] for row in rows}
    # A number counts the rows in print order; a client that monitors real units asks by it.
    asked = ",".join(
        rows[int(name)]["name"] if name.isdecimal() and name not in names and int(name) < len(rows) else name
        for name in numbers.split(",")
    )
    return [row["name"] for row in pick(rows, asked, "name")]


def default_name(device: EmulatedDevice, name: str) -> str:
    """The name from the factory of the port that has a name now."""
    found = device.store.find(ETHERNET, name)
    if found is None:
        raise no_such_item()
    return found.values["default-name"]


def watch(given: Mapping[str, str], look: Callable[[], list[Values]]) -> Reply | Stream:
    """Answer the current values, once or repeatedly, depending on monitor's arguments."""
    if "once" in given:
        return Reply(rows=[narrow(row, given) for row in look()])
    return _repeat_rows(given, look, _parse_interval(given))


def _parse_interval(given: Mapping[str, str]) -> float:
    try:
        return max(durations.seconds(given.get("interval", "1s")), 0.02)
    except ValueError:
        raise TrapError("invalid value for argument interval", ARGUMENT_VALUE) from None


async def _repeat_rows(given: Mapping[str, str], look: Callable[[], list[Values]], interval: float) -> Stream:
    while True:
        for row in look():
            yield narrow(row, given)
        await asyncio.sleep(interval)


def _show_link(device: EmulatedDevice, default_name: str) -> Values:
    seen = _read_link(device, default_name)
    if device.planted_words:
        changed = {name: value for name, value in device.planted_words.items() if value is not None}
        seen = {name: value for name, value in seen.items() if name not in device.planted_words} | changed
    return seen


def _read_link(device: EmulatedDevice, default_name: str) -> Values:
    port, values = device.hardware.by_name[default_name], device.ethernet(default_name).values
    if (unchanged := device.unchanged_link(default_name)) is not None:
        return unchanged.monitor | {"name": values["name"]}
    status = device.links.status(default_name)
    forced = values["auto-negotiation"] == "false"
    seen = {"name": values["name"], "status": status.status}
    if forced:
        seen["auto-negotiation"] = "disabled"
    elif status.status == "initializing":
        seen["auto-negotiation"] = "incomplete"
    else:
        seen["auto-negotiation"] = "done" if status.running else "failed"
    if status.running:
        seen |= {"rate": rate(status.mode.mbps) if status.mode else "10Gbps", "full-duplex": "true"}
        for way in ("tx", "rx"):
            seen[f"{way}-flow-control"] = "true" if values[f"{way}-flow-control"] == "on" else "false"
        if status.mode is not None and status.leg is not None:
            seen["fec"] = status.mode.fec_shown(status.leg.fec)
    seen["supported"] = ",".join(supported(port.kind))
    if not forced:
        seen["advertising"] = values.get("advertise", "")
        seen["link-partner-advertising"] = ""
    if port.kind != "ether":
        seen |= _describe_module(device, port)
    if default_name in device.recorded_links:
        recorded = device.recorded_links[default_name].monitor
        module = {name: value for name, value in recorded.items() if name not in OF_LINK}
        return {name: seen[name] for name in OF_LINK if name in seen} | module
    return seen


def _describe_module(device: EmulatedDevice, port: EmulatedPort) -> Values:
    """The fields of what is plugged into the cage; each lane repeats them."""
    medium = device.links.plant.medium(port.cage)
    if medium is None:
        return {"sfp-module-present": "false"}
    sockets = list(device.links.plant.at(port.cage))
    copper = medium == "copper"
    return {
        "sfp-module-present": "true",
        "sfp-rx-loss": "true" if all(socket.dark for socket in sockets) else "false",
        "sfp-tx-fault": "false",
        "sfp-type": {"qsfp56-dd": "QSFPDD", "qsfp56": "QSFP28/QSFP56"}.get(port.kind, "SFP/SFP+/SFP28/SFP56"),
        "sfp-connector-type": "no-separable-connector" if copper else "multifiber-parallel-optic-1x12",
        **({"sfp-link-length-cable-assembly": "2m"} if copper else {"sfp-link-length-om4": "100m"}),
        "sfp-vendor-name": "SPARKRACK LAB",
        "sfp-vendor-part-number": "DAC-2M" if copper else "SR-100M",
        "sfp-vendor-serial": f"LAB{sum(map(ord, port.cage)):06d}",
        "sfp-manufacturing-date": "26-01-05",
        "eeprom-checksum": "good",
    }

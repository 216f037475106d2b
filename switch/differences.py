"""Differences between a switch and rack.yaml, in the words of rack.yaml. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from core.model.secrets import SecretRef
from core.routeros.change_plan import ChangePlan
from core.routeros.diff import FieldChange, RowChange
from core.routeros.menus import BRIDGE, BRIDGE_PORT, BRIDGE_VLAN, ETHERNET, QOS_PORT, SERVICE, USER, Menu
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind, canonical
from switch.lane_differences import lanes

if TYPE_CHECKING:
    from core.model import Switch


class DifferenceKind(Enum):
    """Kind of a difference: a run would fix it, the operator must fix a fault, and unmanaged rows are only reported."""

    DIFFERS = "differs"
    FAULT = "fault"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True)
class SwitchDifference:
    """One difference from the declaration; `text` is one line without secrets."""

    sort: DifferenceKind
    text: str


LABELS: Mapping[str, str] = {
    "/interface/ethernet": "interface",
    "/interface/bridge": "bridge",
    "/interface/bridge/port": "port",
    "/interface/bridge/vlan": "VLAN of bridge",
    "/interface/ethernet/switch/qos/settings": "lossless traffic",
    "/interface/ethernet/switch/qos/profile": "traffic profile",
    "/interface/ethernet/switch/qos/tx-manager/queue": "queue",
    "/interface/ethernet/switch/qos/priority-flow-control": "PFC profile",
    "/interface/ethernet/switch/qos/port": "port",
    "/system/identity": "identity",
    "/system/clock": "clock",
    "/system/ntp/client": "NTP client",
    "/ip/dns": "DNS",
    "/ip/neighbor/discovery-settings": "neighbour discovery",
    "/system/logging/action": "log action",
    "/system/logging": "log rule",
    "/snmp": "SNMP",
    "/snmp/community": "SNMP user",
    "/system/script": "script",
    "/system/scheduler": "schedule",
    "/ip/service": "service",
    "/user/group": "user group",
    "/user": "user",
    "/tool/mac-server": "MAC telnet server",
    "/tool/mac-server/mac-winbox": "MAC WinBox server",
    "/tool/mac-server/ping": "MAC ping server",
    "/tool/bandwidth-server": "bandwidth test server",
}
"""Label of a row of a menu; the path itself where there is no better label."""


def switch_differences(switch: Switch, reading: SwitchReading, plan: ChangePlan) -> tuple[SwitchDifference, ...]:
    """Return every difference between `reading` and the declaration that `plan` applies, in the plan's order; () means
    that the switch is as declared and works.
    """
    cages = [change for change in plan.changes if change.menu is ETHERNET]
    rows = [change for change in plan.changes if change.menu is not ETHERNET]
    return (
        *(SwitchDifference(DifferenceKind.DIFFERS, text) for text in lanes(switch, reading, cages)),
        *(SwitchDifference(DifferenceKind.DIFFERS, text) for change in rows for text in describe_differences(change)),
        *(SwitchDifference(DifferenceKind.FAULT, text) for text in (*plan.upgrades, *plan.faults)),
        *(
            SwitchDifference(DifferenceKind.UNMANAGED, _describe_undeclared_row(found.menu, found.row))
            for found in plan.unmanaged
        ),
    )


def describe_differences(change: RowChange) -> Iterator[str]:
    """Yield actual and desired values of a row, one line for each difference; at least one."""
    if change.removes:
        yield _describe_undeclared_row(change.menu.path, change.row)
    elif change.menu in _WORDS:
        yield from _WORDS[change.menu](change)
    elif change.adds:
        yield f"{_row_label(change)} is missing{_content_text(change.fields)}"
    else:
        yield from _field_lines(change, change.fields)


def _describe_undeclared_row(path: str, row: str) -> str:
    return f"{LABELS.get(path, path)} {row} is not in rack.yaml"


def _row_label(change: RowChange) -> str:
    return f"{LABELS.get(change.menu.path, change.menu.path)} {change.row}".rstrip()


def _content_text(fields: Iterable[FieldChange]) -> str:
    """Return the content of a missing row, without its key and without secrets."""
    words = [f"{field.name} {field.new}" for field in fields if field.new and not isinstance(field.new, SecretRef)]
    return f"; wanted with {', '.join(words)}" if words else ""


def _field_lines(change: RowChange, fields: Iterable[FieldChange]) -> Iterator[str]:
    for field in fields:
        found, wanted = _found_value(change.menu, field), _wanted_value(change.menu, field)
        if field.name == "disabled":
            yield f"{_row_label(change)} is {_describe_disabled_flag(found)}, wanted {_describe_disabled_flag(wanted)}"
        else:
            yield f"{_row_label(change)}: {field.name} is {found}, wanted {wanted}"


def _describe_disabled_flag(disabled: str) -> str:
    return {"yes": "off", "no": "on"}.get(disabled, disabled)


def _found_value(menu: Menu, field: FieldChange) -> str:
    """The value that was read, or what its absence means."""
    known = menu.fields[field.name]
    if known.private:
        return "another"
    if isinstance(field.new, SecretRef):
        return "unknown"
    value = known.default if field.old is None else field.old
    return "not reported" if value is None else _shown_value(known.kind, value)


def _wanted_value(menu: Menu, field: FieldChange) -> str:
    if isinstance(field.new, SecretRef):
        return f"the one of {field.new}"
    return _shown_value(menu.fields[field.name].kind, field.new)


def _shown_value(kind: ValueKind, value: str) -> str:
    """Format a value for display."""
    return (canonical(kind, value) if kind in (ValueKind.FLAG, ValueKind.LIST, ValueKind.POLICY) else value) or "empty"


def _split_fields(change: RowChange, *names: str) -> tuple[dict[str, FieldChange], tuple[FieldChange, ...]]:
    """The fields of these names, and the rest."""
    return (
        {field.name: field for field in change.fields if field.name in names},
        tuple(field for field in change.fields if field.name not in names),
    )


def _bridge_lines(change: RowChange) -> Iterator[str]:
    if change.adds:
        yield f"there is no bridge {change.row}"
        return
    special, rest = _split_fields(change, "vlan-filtering")
    if "vlan-filtering" in special:
        yield f"bridge {change.row} lets every VLAN pass, wanted only those of rack.yaml (vlan-filtering is off)"
    yield from _field_lines(change, rest)


def _port_lines(change: RowChange) -> Iterator[str]:
    special, rest = _split_fields(change, "bridge", "hw")
    if change.adds:
        yield f"port {change.row} is not in bridge {special['bridge'].new} (in none)"
        return
    if bridge := special.get("bridge"):
        yield f"port {change.row} is not in bridge {bridge.new} (in {bridge.old or 'none'})"
    if "hw" in special:
        yield f"port {change.row} goes through the CPU (hw=no), wanted hardware offload"
    yield from _field_lines(change, rest)


def _vlan_lines(change: RowChange) -> Iterator[str]:
    bridge, vlan = change.key
    special, rest = _split_fields(change, "tagged", "comment", *BRIDGE_VLAN.key)
    if change.adds:
        yield f"VLAN {vlan} is not on bridge {bridge}"
        return
    if tagged := special.get("tagged"):
        has, wants = (set(filter(None, text.split(","))) for text in (tagged.old or "", str(tagged.new)))
        missing, more = sorted(wants - has), sorted(has - wants)
        words = [f"is not on {', '.join(missing)}"] if missing else []
        words += [f"is on {', '.join(more)}, which are not its legs"] if more else []
        yield f"VLAN {vlan} of bridge {bridge} {' and '.join(words)}"
    if comment := special.get("comment"):
        yield f"VLAN {vlan} of bridge {bridge} is not marked as ours (comment {_found_value(BRIDGE_VLAN, comment)})"
    yield from _field_lines(change, rest)


def _service_lines(change: RowChange) -> Iterator[str]:
    special, rest = _split_fields(change, "address")
    yield from _field_lines(change, rest)
    if address := special.get("address"):
        found = address.old.replace(",", ", ") if address.old else "anywhere"
        yield f"service {change.row} can be reached from {found}, wanted from {_comma_list(str(address.new))} only"


def _user_lines(change: RowChange) -> Iterator[str]:
    if change.adds:
        group = next((str(field.new) for field in change.fields if field.name == "group"), "")
        yield f"user {change.row}{f' of group {group}' if group else ''} is missing"
        return
    special, rest = _split_fields(change, "address")
    yield from _field_lines(change, rest)
    if address := special.get("address"):
        found = _comma_list(address.old) if address.old else "anywhere"
        yield f"user {change.row} may log in from {found}, wanted from {_comma_list(str(address.new))} only"


def _comma_list(text: str) -> str:
    return ", ".join(part for part in text.split(",") if part)


def _qos_port(change: RowChange) -> Iterator[str]:
    special, rest = _split_fields(change, "pfc")
    if pfc := special.get("pfc"):
        yield f"PFC of port {change.row} is {_found_value(QOS_PORT, pfc)}, wanted {pfc.new}"
    yield from _field_lines(change, rest)


_WORDS: Mapping[Menu, Callable[[RowChange], Iterator[str]]] = {
    BRIDGE: _bridge_lines,
    BRIDGE_PORT: _port_lines,
    BRIDGE_VLAN: _vlan_lines,
    SERVICE: _service_lines,
    USER: _user_lines,
    QOS_PORT: _qos_port,
}

"""Rows as a CRS812 prints them, of every menu a run may read. Written out here, not taken from the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from core.model.secrets import SecretRef
from core.routeros.diff import RowChange
from core.routeros.errors import SentenceError
from core.routeros.menus import MENUS, OLDEST, USER, Release, Sentence
from core.routeros.reading import SwitchReading, read_switch
from core.routeros.values import canonical

LANES = {"qsfp56-dd-1": 8, "qsfp56-dd-2": 8, "qsfp56-1": 4, "qsfp56-2": 4} | {f"sfp56-{n}": 1 for n in range(1, 9)}
PORTS = (
    "ether1",
    "ether2",
    *(f"{cage}-{lane}" for cage, lanes in LANES.items() if lanes > 1 for lane in range(1, lanes + 1)),
    *(cage for cage, lanes in LANES.items() if lanes == 1),
)

Tables = dict[str, list[dict[str, str]]]
QOS = "/interface/ethernet/switch/qos"
SINGLE = {menu.path for menu in MENUS if menu.single}


def factory() -> Tables:
    """All menus a run may read, of a switch that was never configured."""
    return _unit_tables() | _port_tables() | _qos_tables() | _system_tables() | _access_tables()


def _unit_tables() -> Tables:
    return {
        "/system/resource": [{"board-name": "CRS812-8DS-2DQ-2DDQ", "version": "7.23.8 (long-term)", "uptime": "5m"}],
        "/system/routerboard": [{"model": "CRS812-8DS-2DQ-2DDQ", "serial-number": "HX1"}],
        "/system/package": _number_rows(
            {"name": "routeros", "version": "7.23.8", "disabled": "false"},
            {"name": "switch-marvell", "version": "7.23.8", "disabled": "false"},
        ),
        "/system/device-mode": [{"mode": "advanced", "scheduler": "true", "flagged": "false"}],
        "/safe-mode": [{"enabled": "false", "current": "false"}],
    }


def _port_tables() -> Tables:
    plain = {"disabled": "false", "auto-negotiation": "true", "fec-mode": "auto", "mtu": "1500", "l2mtu": "1584"}
    still = {"rx-flow-control": "off", "tx-flow-control": "off"}
    member = {"bridge": "bridge", "disabled": "false", "hw": "true", "hw-offload": "true", "dynamic": "false"}
    return {
        "/interface/ethernet": _number_rows(
            *({"default-name": name, "name": name, **plain, **still} for name in PORTS), first=2
        ),
        "/interface/bonding": [],
        "/interface/bridge": _number_rows({"name": "bridge", "vlan-filtering": "false", "disabled": "false"}, first=36),
        "/interface/bridge/port": _number_rows(*({"interface": name, **member} for name in PORTS), first=0),
        "/interface/bridge/vlan": [],
        "/interface/bridge/host": [],
    }


def _qos_tables() -> Tables:
    classes = [("low-priority-group", 1), ("low-priority-group", 2), ("low-priority-group", 3)]
    classes += [("high-priority-group", 3), ("high-priority-group", 4), ("high-priority-group", 5)]
    queues = [{"schedule": schedule, "weight": str(weight)} for schedule, weight in classes]
    queues += [{"schedule": "strict-priority", "weight": ""}] * 2
    return {
        f"{QOS}/settings": [{"lossless-traffic-class": "", "lossless-buffers": "auto"}],
        f"{QOS}/profile": _number_rows({"name": "default", "traffic-class": "1"}),
        f"{QOS}/tx-manager/queue": _number_rows(
            *({"tx-manager": "default", "traffic-class": str(number), **queue} for number, queue in enumerate(queues))
        ),
        f"{QOS}/priority-flow-control": _number_rows({"name": "disabled", "traffic-class": "", "rx": "no", "tx": "no"}),
        f"{QOS}/port": _number_rows(*({"name": name, "trust-l3": "ignore", "pfc": "disabled"} for name in PORTS)),
    }


def _system_tables() -> Tables:
    return {
        "/system/identity": [{"name": "MikroTik"}],
        "/system/clock": [{"time-zone-autodetect": "true", "time-zone-name": "Europe/Riga"}],
        "/system/ntp/client": [{"enabled": "false", "mode": "unicast", "servers": ""}],
        "/ip/dns": [{"servers": "", "allow-remote-requests": "false"}],
        "/ip/neighbor/discovery-settings": [
            {"discover-interface-list": "static", "protocol": "cdp,lldp,mndp", "mode": "tx-and-rx"}
        ],
        "/system/logging/action": _number_rows(
            {"name": "memory", "target": "memory"}, {"name": "disk", "target": "disk"}
        ),
        "/system/logging": _number_rows(
            *({"topics": topic, "action": "memory"} for topic in ("info", "error", "warning", "critical"))
        ),
        "/snmp": [{"enabled": "false", "trap-version": "1", "trap-community": "public"}],
        "/snmp/community": _number_rows(
            {"name": "public", "addresses": "::/0", "security": "none", "disabled": "false"}
        ),
        "/system/script": [],
        "/system/scheduler": [],
    }


def _access_tables() -> Tables:
    ports = {
        "ftp": 21,
        "ssh": 22,
        "telnet": 23,
        "www": 80,
        "www-ssl": 443,
        "winbox": 8291,
        "api": 8728,
        "api-ssl": 8729,
    }
    certificates = {"www-ssl": "none", "api-ssl": "own"}
    services = [
        {"name": name, "port": str(port), "address": "", "disabled": str(name == "www-ssl").lower(), "dynamic": "false"}
        | ({"certificate": certificates[name]} if name in certificates else {})
        for name, port in ports.items()
    ]
    return {
        # From 7.23 on, an open connection is a row of the menu, too.
        "/ip/service": _number_rows(*services, {"name": "api-ssl", "port": "8729", "dynamic": "true"}),
        "/user/group": _number_rows({"name": "full", "policy": "local,ssh,read,write,api,rest-api"}),
        "/user": _number_rows({"name": "admin", "group": "full"}, {"name": "sparkrack", "group": "full"}),
        "/user/active": _number_rows({"name": "sparkrack", "address": "10.77.0.10", "via": "api-ssl", "when": "today"}),
        "/ip/arp": _number_rows({"address": "10.77.0.10", "mac-address": "02:00:00:00:00:10"}),
        "/tool/mac-server": [{"allowed-interface-list": "all"}],
        "/tool/mac-server/mac-winbox": [{"allowed-interface-list": "all"}],
        "/tool/mac-server/ping": [{"enabled": "true"}],
        "/tool/bandwidth-server": [{"enabled": "true"}],
    }


def _number_rows(*rows: dict[str, str], first: int = 1) -> list[dict[str, str]]:
    return [{".id": f"*{number:X}", **row} for number, row in enumerate(rows, start=first)]


def asking(tables: Tables, asked: list[str] | None = None) -> Callable[[Sentence], list[dict[str, str]]]:
    """Answers sentences from `tables` as a switch does, and notes in `asked` which menus were asked for."""

    def ask(sentence: Sentence) -> list[dict[str, str]]:
        path = sentence[0].removesuffix("/print")
        if asked is not None:
            asked.append(path)
        if path not in tables:
            raise SentenceError("no such command prefix")
        names = next(word for word in sentence if word.startswith("=.proplist=")).split("=")[2].split(",")
        queries = dict(word[1:].split("=", 1) for word in sentence if word.startswith("?"))
        rows = [row for row in tables[path] if queries.items() <= row.items()]
        return [{name: row[name] for name in names if name in row} for row in rows]

    return ask


def reading(tables: Tables) -> SwitchReading:
    """Return the reading that a run makes of these tables."""
    return read_switch(asking(tables), MENUS, MENUS)


def carry_out(tables: Tables, changes: Iterable[RowChange], release: Release = OLDEST) -> None:
    """Do to the tables what a switch does when it is sent these changes; it prints flags as true and false,
    and no password."""
    printed = {"yes": "true", "no": "false"}
    for change in changes:
        rows = tables[change.menu.path]
        values = {
            change.menu.spelled(name, release): printed.get(value, value)
            for name, value in change.values
            if not isinstance(value, SecretRef)
        }
        if change.removes:
            rows.remove(next(row for row in rows if row[".id"] == change.id))
        elif change.adds:
            rows.append({".id": f"*{100 + len(rows):X}", "disabled": "false", **values})
        elif change.id is None:
            rows[0].update(values)
        else:
            next(row for row in rows if row[".id"] == change.id).update(values)


def row(tables: Tables, name: str, path: str = "/interface/ethernet", key: str = "default-name") -> dict[str, str]:
    """The row of an interface by the name it has from the factory, or of another menu by another key."""
    return next(row for row in tables[path] if row[key] == name)


def meaning(tables: Tables) -> dict[str, list[dict[str, str]]]:
    """Return the meaning of tables, in one spelling, rows in one order and without ids; secrets are never printed.

    Whether a user is disabled is left out: a rollback timer restores a removed one without its password, disabled
    (test_rollback_script tests that separately).
    """
    found = {}
    for menu in MENUS:
        rows = [
            {
                name: canonical(reported.kind, text)
                if (text := _counted_value(entry, name, reported.default or ""))
                else ""
                for name, reported in menu.fields.items()
                if not reported.secret and (menu, name) != (USER, "disabled")
            }
            for entry in tables[menu.path]
        ]
        found[menu.path] = sorted(rows, key=lambda entry: sorted(entry.items()))
    return found


def _counted_value(entry: dict[str, str], name: str, default: str) -> str:
    """A lane that negotiates ignores its speed, and a switch that had none forced cannot be brought to print none."""
    return "" if name == "speed" and entry["auto-negotiation"] == "true" else entry.get(name, default)

"""Checks of claims that need more than one answer and a pattern. Each only reads.

A check raises UnknownError for an answer that it cannot get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from core.hardware.gb10 import HALVES, half_interface
from core.model import Leg, Port, Rack, SecretError
from core.model.errors import counted
from core.probes.links import parse_ethtool_of_all
from core.probes.protocol import UnknownError
from core.routeros.errors import SentenceError, SwitchError, UnreadableError
from core.routeros.menus import ETHERNET, MENUS, RESOURCE, USER, Menu, Row
from core.routeros.session import open_connection
from core.routeros.values import gbps
from core.routeros.versions import release
from roles.preflight.dmi import vendor_of
from sparkrack.accept.claim_results import not_shown, observed, refuted, unknown
from sparkrack.accept.model import MachineResult
from switch.leg_health import LINKED
from switch.verify_client import SwitchChecks

_OTHER_MAKERS = ("acer", "dell", "gigabyte", "hp", "msi")
"""Makers whose DMI strings are inferred."""
_QOS = "/interface/ethernet/switch/qos"
REFUSED = re.compile(r"login as \S+ over REST refused|\b40[13]\b|not enough permissions|forbidden", re.IGNORECASE)
"""How an answer to a user without a policy reads."""

Switches = Mapping[str, SwitchChecks]


@dataclass(frozen=True)
class NodeCheck:
    """A check of each node: its command (empty: the claim is not about this node), and the evaluation of what the
    command printed.
    """

    command: Callable[[Rack, str], str]
    evaluate: Callable[[Rack, str, str, Switches], MachineResult | None]


def _half_commands(rack: Rack, node: str) -> str:
    names = [half.interface for _, port in _legs_of(rack, node) for half in port.halves]
    if not names:
        return ""
    return f"for i in {' '.join(names)}; do [ ! -e /sys/class/net/$i ] || timeout 5 ethtool $i || exit 9; done"


def _legs_of(rack: Rack, node: str) -> Iterator[tuple[Leg, Port]]:
    for port in rack.cabling.ports_of(node):
        if leg := rack.cabling.leg_of(port):
            yield leg, port


# claim: fabric.ethtool-speed
def _half_speeds(rack: Rack, node: str, answer: str, switches: Switches) -> MachineResult | None:
    """The speed of each half with a link is that of the leg, as the switch reports it."""
    try:
        reports = parse_ethtool_of_all(answer)
    except ValueError as fault:
        return unknown(node, str(fault))
    right: list[str] = []
    wrong: list[str] = []
    skipped: list[str] = []
    for leg, port in _legs_of(rack, node):
        for name in (half.interface for half in port.halves):
            report = reports.get(name)
            if report is None or not report.carrier:
                skipped.append(f"{name}: {'no link' if report else 'absent'}")
                continue
            if leg.switch not in switches:
                skipped.append(f"{name}: {leg.switch} is not selected")
                continue
            rate = gbps(switches[leg.switch].links.get(leg.interface, {}).get("rate"))
            if rate is None:
                raise UnknownError(f"{name}: {leg.switch} does not report the rate of {leg.interface}")
            text = f"{name}: Speed is {report.speed or 'absent'}, leg {leg} runs at {rate:g} Gb/s"
            (right if report.mbps == rate * 1000 else wrong).append(text)
    if wrong:
        return refuted(node, "; ".join(wrong))
    return observed(node, "; ".join(right)) if right else not_shown(node, "; ".join(skipped))


def _names_command(_rack: Rack, _node: str) -> str:
    return (
        "o=$(timeout 20 lspci -D -d 15b3:) || exit 9\nls /sys/class/net\n"
        f"for f in {' '.join(HALVES)}; do\n"
        'case "$o" in *"$f "*) ;; *) echo "no function $f" ;; esac\ndone'
    )


def interface_names(answer: str) -> tuple[list[str], list[str]]:
    """The names of interfaces that are absent although their functions are there, and the functions that are absent
    and have no interface: DGX OS may remove those of a port without a link.
    """
    lines = answer.splitlines()
    wrong: list[str] = []
    gone: list[str] = []
    for function, (port, half) in HALVES.items():
        if (name := half_interface(port, half)) not in lines:
            absent = f"no function {function}" in lines
            (gone if absent else wrong).append(function if absent else name)
    return wrong, gone


# claim: fabric.interface-names
def _interface_names(_rack: Rack, node: str, answer: str, _switches: Switches) -> MachineResult:
    """The interface of each function has its name."""
    wrong, gone = interface_names(answer)
    if wrong:
        return refuted(node, f"not in the answer: {', '.join(wrong)}; answer: {answer}")
    if gone:
        return not_shown(node, f"the node has no function {', '.join(gone)}; the rest holds: {answer}")
    return observed(node, answer)


def _dmi_command(rack: Rack, node: str) -> str:
    if rack.nodes[node].vendor not in (None, *_OTHER_MAKERS):
        return ""
    # As preflight asks, where the kernel shows no DMI table.
    return (
        'dmi() { echo "$1=$(cat "/sys/class/dmi/id/$1" 2>/dev/null || dmidecode -s "$2")"; }; '
        "dmi sys_vendor system-manufacturer; dmi board_vendor baseboard-manufacturer; "
        "dmi product_name system-product-name"
    )


# claim: preflight.dmi
def _dmi_vendor(rack: Rack, node: str, answer: str, _switches: Switches) -> MachineResult | None:
    """The strings name the declared maker, or one whose strings are inferred, by the words that preflight knows."""
    fields = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
    if not fields.get("sys_vendor"):
        return unknown(node, f"the answer is not understood: {answer or 'it is empty'}")
    wanted = rack.nodes[node].vendor
    made = vendor_of(fields["sys_vendor"], fields.get("board_vendor", ""))
    if wanted is None:
        return observed(node, answer) if made in _OTHER_MAKERS else None
    if made == wanted:
        return observed(node, answer)
    return refuted(node, f"no string names {wanted}: {answer}")


def _flag_value(row: Row, field: str) -> bool | None:
    return {"true": True, "yes": True, "false": False, "no": False}.get(row.get(field, ""))


# claim: switch.monitor.fields
def _monitor_fields(look: SwitchChecks) -> MachineResult:
    """Every cabled leg that is up and forced has a status, a rate and a FEC."""
    host = look.switch.name
    rows = look.ask((f"{ETHERNET.path}/print", "=.proplist=default-name,auto-negotiation,running"))
    ports = {row.get("default-name", ""): row for row in rows}
    right: list[str] = []
    wrong: list[str] = []
    for leg, _ in look.rack.cabling.legs(host):
        port, seen = ports.get(leg.interface, {}), look.links.get(leg.interface)
        if seen is None:
            raise UnknownError(f"{leg.interface}: the monitor has no row")
        if _flag_value(port, "auto-negotiation") is not False:
            continue
        if not (_flag_value(port, "running") or seen.get("status") == LINKED):
            continue
        absent = [field for field in ("status", "rate", "fec") if not seen.get(field)]
        text = ", ".join(f"{field} is {seen.get(field) or 'absent'}" for field in ("status", "rate", "fec"))
        unparsed = gbps(seen.get("rate")) is None or seen.get("status") != LINKED
        (wrong if absent or unparsed else right).append(f"{leg.interface}: {text}")
    if wrong:
        return refuted(host, "; ".join(wrong))
    return observed(host, "; ".join(right)) if right else not_shown(host, "no cabled leg with a forced speed is up")


# claim: discovery.neighbor-words
def _neighbor_interfaces(look: SwitchChecks) -> MachineResult:
    """The first word of each neighbour's interface is an interface of the switch."""
    host = look.switch.name
    rows = look.ask(("/ip/neighbor/print", "=.proplist=interface"))
    names = {row.get("name", "") for row in look.ethernet.values()}
    values = list(dict.fromkeys(row.get("interface", "") for row in rows))
    if wrong := [value for value in values if value.split(",")[0] not in names]:
        texts = "; ".join(f"interface is {value or 'absent'}" for value in wrong)
        return refuted(host, f"/ip/neighbor: {texts}, whose first word is no Ethernet interface")
    if not values:
        return not_shown(host, "/ip/neighbor has no rows")
    return observed(host, f"/ip/neighbor: interface is {'; '.join(values)}")


# claim: switch.qos.menus
def _qos_menus(look: SwitchChecks) -> MachineResult | None:
    """Each menu answers, and its rows have the fields without a default."""
    host = look.switch.name
    version = next(iter(look.ask(RESOURCE.sentence())), {}).get("version", "")
    found = release(version)
    if found is None:
        return unknown(host, f"RouterOS version is {version or 'absent'}")
    if found[:2] != (7, 23):
        return not_shown(host, f"it runs RouterOS {version}; the claim is about 7.23")
    right, wrong = [], []
    for menu in (menu for menu in MENUS if menu.path.startswith(f"{_QOS}/")):
        try:
            rows = look.ask(menu.sentence(found))
        except UnknownError as fault:
            if look.lost or "no such command" not in fault.reason:
                raise
            wrong.append(f"{menu.path} is absent ({fault.reason})")
            continue
        if absent := _absent_fields(menu, rows):
            wrong.append(f"{menu.path}: {', '.join(absent)} absent")
        else:
            right.append(f"{menu.path}: {counted(len(rows), 'row')}")
    if wrong:
        return refuted(host, f"RouterOS {version}: {'; '.join(wrong)}")
    return observed(host, f"RouterOS {version}: {'; '.join(right)}")


def _absent_fields(menu: Menu, rows: tuple[Row, ...]) -> list[str]:
    """The fields of a menu with fixed rows that no row has although RouterOS prints them always."""
    if not menu.fixed or not rows:
        return []
    always = [name for name, field in menu.fields.items() if field.default is None and not field.only_if]
    return [name for name in always if not any(name in row for row in rows)]


# claim: switch.reader.policies
def _reader_policies(look: SwitchChecks) -> MachineResult | None:
    """The declared reader gets monitor, users and counters."""
    host = look.switch.name
    if not (look.switch.reader and look.switch.tls):
        return None
    # A session of its own: after a refused login a session asks nothing more.
    own = SwitchChecks(look.rack, look.switch)
    try:
        own.ask(RESOURCE.sentence())
        questions: Mapping[str, Callable[[], object]] = {
            "monitor": lambda: own.links,
            "users": lambda: own.ask(USER.sentence()),
            "counters": own.counters,
        }
        for name, question in questions.items():
            try:
                question()
            except UnknownError as fault:
                if REFUSED.search(fault.reason):
                    return refuted(host, f"{name}: {fault.reason}")
                raise
        return observed(host, f"{own.way}: {', '.join(questions)} are answered")
    finally:
        own.close()


# claim: switch.console-inspect
def _console_inspect(look: SwitchChecks) -> MachineResult:
    """The API lists the QoS menus that this program uses."""
    host = look.switch.name
    wanted = dict.fromkeys(menu.path.removeprefix(f"{_QOS}/").split("/")[0] for menu in MENUS if _QOS in menu.path)
    try:
        with open_connection(look.switch, lambda _: None) as line:
            path = ",".join(_QOS.strip("/").split("/"))
            rows = line.talk("/console/inspect", "=request=child", f"=path={path}")
    except SentenceError as refusal:
        return refuted(host, f"/console/inspect: {refusal}")
    except (SwitchError, SecretError, UnreadableError) as fault:
        raise UnknownError(str(fault)) from None
    names = [row["name"] for row in rows if row.get("type") == "child" and "name" in row]
    if absent := [name for name in wanted if name not in names]:
        return refuted(
            host, f"/console/inspect {_QOS}: {', '.join(absent)} absent; it has {', '.join(names) or 'nothing'}"
        )
    return observed(host, f"/console/inspect {_QOS}: {', '.join(names)}")


NODE_CHECKS: Mapping[str, NodeCheck] = {
    "half-speeds": NodeCheck(_half_commands, _half_speeds),
    "interface-names": NodeCheck(_names_command, _interface_names),
    "dmi-vendor": NodeCheck(_dmi_command, _dmi_vendor),
}
SWITCH_CHECKS: Mapping[str, Callable[[SwitchChecks], MachineResult | None]] = {
    "monitor-fields": _monitor_fields,
    "neighbor-interfaces": _neighbor_interfaces,
    "qos-menus": _qos_menus,
    "reader-policies": _reader_policies,
    "console-inspect": _console_inspect,
}
"""The checks that claims.yaml names, of nodes and of switches; None: the claim is not about this host."""
COMPARED_WITH_SWITCH = frozenset({"half-speeds"})
"""Checks of nodes that read the switch, too."""

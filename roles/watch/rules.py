"""The rules of Prometheus: alerts, and what rack.yaml declares as series that they compare with. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from core.model import Node, Port, Rack
from core.model.fields import mebibytes
from core.model.rdma_flows import unit_flows, used
from core.util import resources
from core.util.managed_file import ManagedFile, header
from roles.blackbox.options import BlackboxOptions, cap_of
from roles.memory.options import MemoryOptions
from roles.watch import switch_reader
from roles.watch.desired import RULES
from roles.watch.options import WatchOptions
from serving.options import rdma_is_measured, served_units

ALERTS = (
    "files/alerts-node.yml",
    "files/alerts-memory.yml",
    "files/alerts-recorder.yml",
    "files/alerts-blackbox.yml",
    "files/alerts-fabric.yml",
    "files/alerts-engines.yml",
    "files/alerts-rack.yml",
    "files/alerts-server.yml",
)
"""A group of alerts each."""
HEARTBEAT = "Watchdog"
"""An alert that always fires, so that its receiver outside of the rack notices when alerts end."""
CHECK = 'promtool check rules "$new"'


# claim: watch.exporter-series
# claim: watch.thresholds
def rule_file(rack: Rack) -> ManagedFile:
    """Return the rules for this rack."""
    files = (*ALERTS, *switch_reader.alerts(rack))
    alerts = "".join(resources.file_text("roles.watch", file) for file in files)
    notify = rack.options(WatchOptions).notify
    if notify and notify.heartbeat:
        alerts += resources.file_text("roles.watch", "files/alerts-heartbeat.yml")
    declared = "\n".join(f"  - {line}" for line in _list_declared_values(rack))
    text = f"{header(rack.rack)}\ngroups:\n- name: rack\n  rules:\n{declared}\n{alerts}"
    return ManagedFile(RULES, text.encode(), validate=CHECK)


def alert_names(rack: Rack) -> tuple[str, ...]:
    """Return the names of the alerts."""
    return tuple(re.findall(r"^  - alert: (\w+)$", rule_file(rack).content.decode(), re.MULTILINE))


def _list_declared_values(rack: Rack) -> Iterator[str]:
    """Yield a recording rule for each declared value: alerts compare with it, and pictures name the cables by it.

    A role that rack.yaml leaves alone sets nothing, so nothing is compared with what it would set.
    """
    memory, blackbox = rack.options(MemoryOptions), rack.declared(BlackboxOptions)
    caps = blackbox.clock_cap if blackbox and rack.keeps("blackbox") else {}
    for name, node in rack.nodes.items():
        if rack.keeps("memory"):
            yield _render_constant_rule("sparkrack_swap_declared", int(memory.swap), node=name)
        if memory.floor and rack.keeps("memory"):
            yield _render_constant_rule("sparkrack_memory_floor_bytes", mebibytes(memory.floor) * 1024**2, node=name)
        if cap := cap_of(caps, node):
            yield _render_constant_rule("sparkrack_gpu_declared_clock_cap_hertz", cap * 10**6, node=name)
        for part in _blackbox_parts(rack, node, blackbox):
            yield _render_constant_rule("sparkrack_blackbox_declared", 1, node=name, part=part)
        if blackbox and rack.keeps("blackbox") and blackbox.remote == "tls" and len(rack.nodes) > 1:
            yield _render_constant_rule("sparkrack_blackbox_certificate_declared", 1, node=name)
        carrying = {address.half for address in used(rack, name)}
        for port in rack.cabling.ports_of(name):
            rails = len(carrying & set(port.halves))
            yield _render_constant_rule("sparkrack_port_declared_rails", rails, node=name, port=str(port.number))
            cable = rack.cabling.cable_of(port)
            leg = rack.cabling.leg_of(port)
            for half in port.halves:
                place = {"node": name, "device": half.interface}
                names = {"port": str(port.number), "half": str(half.index), "leg": str(leg or "")}
                yield _render_constant_rule("sparkrack_half_info", 1, **place, **names)
                if cable and isinstance(cable.b, Port):
                    far_end = cable.b if cable.a == port else cable.a
                    yield _render_constant_rule("sparkrack_half_peer", 1, **place, peer=far_end.node)
                if rack.keeps("fabric"):
                    yield _render_constant_rule("sparkrack_half_declared_mtu_bytes", rack.fabric.mtu, **place)
                if cable:
                    yield _render_constant_rule("sparkrack_half_declared_bits_per_second", cable.gbps * 10**9, **place)
    for name in rack.models:
        yield _render_constant_rule("sparkrack_model_declared", 1, model=name)
    for unit, name in _ranks_over_rdma(rack):
        yield _render_constant_rule("sparkrack_unit_rank_declared", 1, unit=unit, node=name)
    for name, device, peer in sorted(_to_prove(rack)):
        yield _render_constant_rule("sparkrack_half_to_prove", 1, node=name, device=device, peer=peer)


def _blackbox_parts(rack: Rack, node: Node, blackbox: BlackboxOptions | None) -> Iterator[str]:
    """Yield the parts of the black box of a node that are declared, as files/node_metrics.py names them."""
    if blackbox is None or not rack.keeps("blackbox"):
        return
    others = len(rack.nodes) > 1
    parts = {
        "watchdog": blackbox.watchdog,
        "watchdog_panics": blackbox.watchdog and blackbox.watchdog_panics,
        "panic": True,
        "pstore": blackbox.pstore,
        "journal": True,
        "evidence": blackbox.boot_evidence,
        "kdump": blackbox.kdump,
        "recorder": blackbox.recorder,
        "clock_cap": cap_of(blackbox.clock_cap, node),
        "upload": others and blackbox.remote,
        "netconsole": others and blackbox.netconsole,
    }
    yield from (part for part, declared in parts.items() if declared)


def _ranks_over_rdma(rack: Rack) -> Iterator[tuple[str, str]]:
    """Yield unit and node of each rank that is to use RDMA: of units of several nodes, unless sockets are allowed."""
    if not rdma_is_measured(rack):
        return
    for unit in served_units(rack).values():
        names = unit.ranks(rack.nodes)
        yield from ((unit.name, name) for name in names if len(names) > 1)


def _to_prove(rack: Rack) -> set[tuple[str, str, str]]:
    """Return node, interface and peer of each half that the gate of a unit that is to run measures."""
    if not rdma_is_measured(rack):
        return set()
    return {
        (flow.here.half.node, flow.here.half.interface, flow.there.half.node)
        for unit in served_units(rack).values()
        if unit.state == "up"
        for flow in unit_flows(rack, unit.ranks(rack.nodes))
    }


def _render_constant_rule(series: str, value: int, **labels: str) -> str:
    words = ", ".join(f"{key}: {json.dumps(text)}" for key, text in labels.items() if text)
    return f"{{record: {series}, expr: vector({value}), labels: {{{words}}}}}"

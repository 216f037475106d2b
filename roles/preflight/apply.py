"""Look whether the nodes may be changed. Nothing here changes any."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.preflight import alike, state
from roles.preflight.view import busy, fleet, look
from sparkrack.fleet import Node, Rack
from sparkrack.ops import probe, refusal, report
from sparkrack.ops.account import Sort


@deploy("Preflight")
def apply(rack: Rack, node: Node) -> None:
    """Every gate before the first change, of nodes or switch: stands first in a run.

    Does not protect from what a node becomes later in the run.
    """
    pass_gates(name="Look whether every node may be changed", rack=rack, node=node)


@operation()
def pass_gates(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Refuse this node, one line a gate, or tell what is worth knowing and do nothing.

    + rack: what the nodes shall be
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        facts = look(host)
        holder = busy(host) if node.name == next(iter(rack.nodes)) else None
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"preflight: {unknown}; nothing was changed")
        return
    if rack.leave:
        report.warn(host, f"preflight: roles {', '.join(rack.leave)}, as leave in the rack file says", Sort.UNMANAGED)
    nodes = fleet(host)
    for line in alike.warnings(facts):
        report.warn(host, f"preflight: {line}")
    for line in alike.differences(rack, node.name, nodes):
        report.warn(host, f"preflight: {line}", Sort.FLEET)
    if holder and not host.state.is_executing:
        report.warn(host, f"preflight: {holder.busy}")
    faults = [holder.busy] if holder and host.state.is_executing else []
    faults += [*state.gates(rack, node, facts), *alike.refusals(rack, node.name, nodes)]
    if faults:
        yield refusal.refuse(host, *(f"preflight: {fault}" for fault in faults))
        return
    host.noop(f"{facts.maker} {facts.product}, BIOS {facts.bios}: may be changed")

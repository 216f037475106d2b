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
from sparkrack.ops import lock, probe, refusal, report
from sparkrack.ops.account import Sort
from sparkrack.ops.second import ask_anew


@deploy("Preflight")
def apply(rack: Rack, node: Node) -> None:
    """Every gate before the first change, of nodes or switch: stands first in a run.

    Does not protect from what a node becomes later in the run.
    """
    pass_gates(name="Look whether every node may be changed", rack=rack, node=node)


@deploy("Preflight")
def apart(rack: Rack) -> None:
    """For a run of plain pyinfra that `--limit` keeps away from the head node: its first host looks at the lock there.

    Does not keep it: a run that begins a moment later is not refused.
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    state = host.state
    limited = [one for one in state.inventory if state.is_host_in_limit(one)]
    head = state.inventory.get_host(next(iter(rack.nodes)))
    if head is not None and head not in limited and limited[0] is host:
        find_free(name="Look whether another run holds the rack", head=head.name)


@operation()
def find_free(head: str) -> Generator[PyinfraCommand, None, None]:
    """Refuse this host while another run holds the rack, or say that nobody could look.

    + head: the node that keeps the lock
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        fine, lines = ask_anew(host.state.inventory.get_host(head), f"( {lock.look()} ) || [ $? -eq {lock.GONE} ]")
    except OSError as error:
        fine, lines = False, [str(error)]
    said = "\n".join(lines)
    if not fine:
        why = lines[-1] if lines else "no answer"
        report.warn(host, f"preflight: the lock of the rack on {head} was not looked at: {why}")
    elif said and not lock.expired(said):
        busy = f"preflight: {lock.told(said).busy}"
        if host.state.is_executing:
            yield refusal.refuse(host, busy)
            return
        report.warn(host, busy)
    else:
        host.noop("no other run holds the rack")


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

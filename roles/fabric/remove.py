"""Take the fabric off a node: its interfaces lose our addresses, VLANs and MTU, and files of others come back."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from core.model import Node, Rack
from core.ops import announce, host_facts, refusals, remote_files
from core.ops.removal import Traces, take_off
from core.ops.rollback import PendingChange
from core.ops.rollout import rollout
from core.ops.shell import sudo_script
from core.probes.protocol import UnknownError
from core.util.event import Action, file_acted, value_change
from roles.fabric import ROLE, desired, foreign_netplan, scripts
from roles.fabric.apply import prove_network
from roles.fabric.facts import TRIAL, FabricFacts

TRACES = Traces(
    ROLE.key,
    own=(desired.HOTPLUG,),
    links=(f"{foreign_netplan.PLACE}*.yaml",),
    after="rm -rf /run/sparkrack/netplan",
).register()


@deploy(ROLE.title)
def remove(rack: Rack, node: Node, seconds: int = TRIAL.seconds) -> None:
    """Take our file off, tried and confirmed as in a run; then bring the files of others back, for the next boot."""
    unconfigure_fabric(name="Take the fabric off its interfaces", rack=rack, node=node, seconds=seconds, _serial=True)
    take_off(name="Bring files of others back", traces=TRACES, _serial=True)


@operation()
def unconfigure_fabric(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """Take our netplan file off one node, as one pending change.

    + rack: all nodes and cables
    + node: the one this host is
    + seconds: how long the node waits for the confirmation
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    progress = rollout(host, "fabric")
    try:
        view = FabricFacts(host_facts.read(host, "fabric"), rack, node)
        ours = view.before is not None or view.reading.content(desired.TRIED) is not None
        obstacles = list(view.unit_blockers) if ours else []
        if view.reading.content(TRIAL.script) is not None:
            obstacles.append(TRIAL.busy)
        now = view.now
    except (UnknownError, ValueError) as unknown:
        yield refusals.fail_unknown(host, unknown)
        return
    if progress.blockers or obstacles:
        yield refusals.refuse(host, *progress.blockers, *obstacles)
        return
    if not ours:
        host.noop("no interface is configured by us")
        return
    host_facts.invalidate(host)
    announce.announce_change(host, file_acted(Action.REMOVE, desired.KEPT))
    announce.announce_change(
        host,
        [value_change(f"addresses of {name}", " ".join(sorted(was.addresses)), "none") for name, was in now.items()],
    )
    trial = PendingChange(TRIAL.name, scripts.revert(now), seconds)
    armed = kept = False
    with progress.step(host, node.name):
        try:
            empty = remote_files.encoded(foreign_netplan.EMPTY_NETPLAN)
            yield sudo_script(scripts.generate(candidate=True), stdin=empty)
            yield trial.arm()
            armed = True
            hide = f"umask 077; mkdir -p /run/netplan; base64 -d > {desired.TRIED}; chmod 600 {desired.TRIED}"
            yield sudo_script(f"{hide}; {scripts.deactivate(now)}", stdin=empty)
            yield FunctionCommand(prove_network, ("true",), {})
            yield trial.keep(f"rm -f {desired.KEPT} {desired.TRIED}; sync /etc/netplan", stdin="")
            kept = True
        finally:
            # pyinfra ends an operation at its first failing command by closing this generator.
            if host.state.is_executing and armed and not kept:
                trial.take_back(host, "the old network")

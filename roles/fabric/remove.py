"""Take the fabric off a node: its interfaces lose our addresses, VLANs and MTU, and files of others come back."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from core.model import Node, Rack
from core.ops import announce, host_facts, remote_files
from core.ops.removal import Traces, take_off
from core.ops.rollback import PendingChange
from core.ops.rollout import rollout
from core.ops.shell import sudo_script
from core.util.event import Action, file_acted, value_change
from roles.fabric import ROLE, desired, foreign_netplan, scripts
from roles.fabric.apply import prove_network, read_or_refuse
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
    view = read_or_refuse(host, rack, node, _list_obstacles)
    if not isinstance(view, FabricFacts):
        yield view
        return
    if not _has_our_files(view):
        host.noop("no interface is configured by us")
        return
    now = view.now
    host_facts.invalidate(host)
    announce.announce_change(host, file_acted(Action.REMOVE, desired.KEPT))
    announce.announce_change(
        host,
        [value_change(f"addresses of {name}", " ".join(sorted(was.addresses)), "none") for name, was in now.items()],
    )
    trial = PendingChange(TRIAL.name, scripts.revert(now), seconds)
    empty = remote_files.encoded(foreign_netplan.EMPTY_NETPLAN)
    hide = f"umask 077; mkdir -p /run/netplan; base64 -d > {desired.TRIED}; chmod 600 {desired.TRIED}"
    changes = (
        sudo_script(f"{hide}; {scripts.deactivate(now)}", stdin=empty),
        FunctionCommand(prove_network, ("true",), {}),
        trial.keep(f"rm -f {desired.KEPT} {desired.TRIED}; sync /etc/netplan", stdin=""),
    )
    with rollout(host, "fabric").step(host, node.name):
        yield sudo_script(scripts.generate(candidate=True), stdin=empty)
        yield from trial.attempt(host, changes, "the old network")


def _has_our_files(view: FabricFacts) -> bool:
    return view.before is not None or view.reading.content(desired.TRIED) is not None


def _list_obstacles(view: FabricFacts) -> list[str]:
    _ = view.now
    obstacles = list(view.unit_blockers) if _has_our_files(view) else []
    return obstacles if view.reading.content(TRIAL.script) is None else [*obstacles, TRIAL.busy]

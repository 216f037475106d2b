"""Make a node's fabric what `state` says."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from roles.fabric import adopt, scripts, state
from roles.fabric.view import TRIAL, View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report
from sparkrack.ops.account import Sort
from sparkrack.ops.second import ask_anew
from sparkrack.ops.shell import quote, root
from sparkrack.ops.trial import Trial

PEER_SECONDS = 15
"""How long a peer may take to answer the proof, and networkd to act."""


@dataclass
class Run:
    """What one run knows: the nodes whose fabric is right, which the next one must therefore reach, and the node
    that could not be brought there, after which no other is touched."""

    proven: set[str] = field(default_factory=set)
    failed: str | None = None


_runs: WeakKeyDictionary[State, Run] = WeakKeyDictionary()


@deploy("Fabric")
def apply(rack: Rack, node: Node, seconds: int = TRIAL.seconds) -> None:
    """Give both halves of each cabled port their address and MTU: tried, proven from outside, then kept.

    seconds: how long a node waits for proof before it takes the change back. Does not protect from somebody who
    cuts the management network itself during that time; the node then ends with its old fabric.
    """
    declare_hotplug(name="Say whether a ConnectX-7 port without a peer may be removed", rack=rack)
    give_network(
        name="Give the fabric interfaces their addresses and MTU",
        rack=rack,
        node=node,
        seconds=seconds,
        _serial=True,
    )


@operation()
def declare_hotplug(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """DGX OS's own switch for it: a file that is there, or not. It is looked at when a cable or a peer goes.

    + rack: whose `fabric.hotplug` says it; without it the file is left as it is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        there = probe.read(host, "fabric").content(state.HOTPLUG) is not None
    except probe.UnknownError as unknown:
        yield refusal.unknown(host, f"fabric: {unknown}; nothing was changed")
        return
    wanted = rack.fabric.hotplug
    if wanted is None or wanted == there:
        host.noop("hotplug is left alone" if wanted is None else f"hotplug is {'on' if wanted else 'off'}")
        return
    probe.forget(host)
    report.tell(host, [f"{state.HOTPLUG}: {'made' if wanted else 'removed'}"])
    if wanted:
        yield root(f"install -d -m 755 {state.HOTPLUG.rpartition('/')[0]}; : > {state.HOTPLUG}")
    else:
        yield root(f"rm -f {state.HOTPLUG}")


@operation()
def give_network(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """One node's fabric, as one change on trial.

    + rack: all nodes and cables
    + node: the one this host is
    + seconds: how long the node waits for proof
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    run = _runs.setdefault(host.state, Run())
    try:
        view = View(rack, node, probe.read(host, "fabric"))
        obstacles, right, dead = view.obstacles, view.right, view.dead
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"fabric: {unknown}; nothing was changed")
        return
    if run.failed:
        obstacles = [f"not touched, since {run.failed} failed and nodes change one at a time", *obstacles]
    if obstacles:
        yield refusal.refuse(host, *(f"fabric: {obstacle}" for obstacle in obstacles))
        return
    for line in dead:
        report.warn(host, f"fabric: {line}", Sort.FAULT)
    if right:
        host.noop("the fabric interfaces are as declared")
        run.proven.add(node.name)
        return
    probe.forget(host)
    if view.before != view.wanted:
        report.show(host, state.KEPT, view.before, view.wanted)
    elif not view.private:
        report.tell(host, [f"{state.KEPT}: owner and mode are put right"])
    report.tell(host, view.faults)
    if view.reading.content(state.TRIED) is not None:
        report.tell(host, [f"{state.TRIED}: left by a run that was cut off; removed"])
    for path, content in view.adopted.items():
        report.tell(host, [f"{path} is taken over; it is kept in {files.BACKUPS}"])
        report.show(host, path, content, None)
    if view.wanted is None:
        yield root("; ".join([f"rm -f {state.KEPT} {state.TRIED}", *scripts.bare(view.now)]))
        return
    yield from _on_trial(host, run, view, seconds)


def _on_trial(host: Host, run: Run, view: View, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """The change, between the arming of the node's own clock and its end."""
    rack, node, after = view.rack, view.node, view.wanted or b""
    trial = Trial(TRIAL.name, scripts.revert(view.now, view.adopted), seconds)
    armed = kept = False
    try:
        yield root(scripts.generate(candidate=True, adopted=view.adopted), stdin=files.encoded(after))
        yield trial.arm()
        armed = True
        shadows = scripts.shadow(view.adopted, files.encoded(adopt.SHADOW))
        yield _activate(after, shadows + scripts.activate(state.wanted(rack, node), view.now))
        peers = run.proven | _right_already(host, view)
        yield FunctionCommand(_prove, (scripts.proof(rack, node, view.now, peers, PEER_SECONDS),), {})
        yield _keep(after, trial, view.adopted)
        kept = True
        if host.state.is_executing:  # a plan that is drained comes by here, and proves nothing
            run.proven.add(node.name)
    finally:
        # pyinfra ends an operation at its first failing command by closing this generator.
        if host.state.is_executing and not kept:
            run.failed = node.name
            if armed:
                trial.take_back(host, "the old network")


def _right_already(host: Host, view: View) -> set[str]:
    """The other nodes of this run that need no change, by what was read of them for an earlier operation."""
    found = set()
    for other in host.state.inventory.get_active_hosts():
        node, reading = other.data.get("node"), probe.peek(other, "fabric")
        if node is None or reading is None or other is host:
            continue
        try:
            if View(view.rack, node, reading).right:
                found.add(node.name)
        except (probe.UnknownError, ValueError):
            continue  # it is refused when its turn comes
    return found


def _activate(content: bytes, activate: str) -> PyinfraCommand:
    return root(
        f"umask 077; mkdir -p /run/netplan; base64 -d > {state.TRIED}; {activate}",
        stdin=files.encoded(content),
    )


def _keep(content: bytes, trial: Trial, adopted: Mapping[str, bytes]) -> PyinfraCommand:
    away = "".join(
        f"install -d -m 700 {files.BACKUPS}; mv -fT {quote(path, files.backup(path, before))}; "
        f"rm -f {quote(scripts.hidden(path))}; "
        for path, before in adopted.items()
    )
    return trial.keep(
        f"umask 077; new=$(mktemp /etc/netplan/.{state.FILE}.XXXXXX); base64 -d > $new; chmod 600 $new; sync $new; "
        f"mv -fT $new {state.KEPT}; {away}rm -f {state.TRIED}; sync /etc/netplan",
        stdin=files.encoded(content),
    )


def _prove(state: State, host: Host, script: str) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    """Management and fabric work, seen through a new connection."""
    try:
        fine, output = ask_anew(host, script)
    except OSError as error:
        fine, output = False, [str(error)]
    if not fine:
        for line in output or ["the proof could not be run"]:
            host.log_styled(f"not proven: {line}", fg="red", log_func=logger.error)
    return fine

"""Make a node's fabric what `state` says."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from roles.fabric import state
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, report
from sparkrack.ops.refusal import refuse
from sparkrack.ops.second import ask_anew
from sparkrack.ops.shell import root
from sparkrack.ops.trial import Trial

LINKS = "fabric-links"
OTHERS = "netplan-interfaces"
MODE = "netplan-mode"
TRIAL = Trial(name="fabric", revert="", seconds=90)
"""What every trial of this role has in common; each has a revert of its own."""
PEER_SECONDS = 15

probe.register(
    "fabric",
    probe.Probe(
        files=(state.KEPT, state.TRIED, TRIAL.script),
        commands={
            LINKS: "ip -j address",
            # Only lines that name a ConnectX-7 interface: the files of others may hold secrets (Wi-Fi).
            OTHERS: 'for f in /etc/netplan/*.yaml /run/netplan/*.yaml /usr/lib/netplan/*.yaml; do [ ! -e "$f" ] || '
            "grep -HE '^[[:space:]]+[^[:space:]]?en(p1|P2p1)s0f[01]np[01]' \"$f\" || [ $? -eq 1 ] || exit 9; done",
            MODE: f"[ ! -e {state.KEPT} ] || stat -c %a:%U:%G {state.KEPT}",
        },
    ),
)


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
    give_network(
        name="Give the fabric interfaces their addresses and MTU",
        rack=rack,
        node=node,
        seconds=seconds,
        _serial=True,
    )


@operation()
def give_network(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """One node's fabric, as one change on trial.

    + rack: all nodes and cables
    + node: the one this host is
    + seconds: how long the node waits for proof
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    names = state.interfaces(rack, node)
    try:
        reading = probe.read(host)
        before = reading.content(state.KEPT)
        mode = reading.text(MODE).strip()
        now = state.live(reading.text(LINKS), names)
        foreign = state.foreign(reading.text(OTHERS), names)
        busy = reading.content(TRIAL.script) is not None
        left_over = reading.content(state.TRIED) is not None
    except (probe.UnknownError, ValueError, KeyError, TypeError) as unknown:
        yield refuse(host, f"fabric: {unknown}; nothing was changed")
        return
    missing = [
        f"{name}: is not there; is its cable in, and its driver loaded?" for name in state.missing(rack, node, now)
    ]
    run = _runs.setdefault(host.state, Run())
    stopped = [f"not touched, since {run.failed} failed and nodes change one at a time"] if run.failed else []
    reasons = stopped + ([TRIAL.busy] if busy else []) + missing + foreign
    if reasons:
        yield refuse(host, *(f"fabric: {reason}" for reason in reasons))
        return
    after = state.netplan(rack, node)
    faults = state.faults(rack, node, now)
    fine = before == after and (after is None or mode == "600:root:root")
    if fine and not faults and not left_over:
        host.noop("the fabric interfaces are as declared")
        run.proven.add(node.name)
        return
    probe.forget(host)
    report.show(host, state.KEPT, before, after)
    report.tell(host, faults)
    if after is None:
        yield root(f"rm -f {state.KEPT} {state.TRIED}")
        return
    trial = Trial(TRIAL.name, state.revert(now), seconds)
    armed = kept = False
    try:
        yield root(state.generate(candidate=True), stdin=files.encoded(after))
        yield trial.arm()
        armed = True
        yield _activate(after, names)
        yield FunctionCommand(_prove, (state.proof(rack, node, run.proven, PEER_SECONDS),), {})
        yield _keep(after, trial)
        kept = True
        run.proven.add(node.name)
    finally:
        # pyinfra ends an operation at its first failing command by closing this generator.
        if host.state.is_executing and not kept:
            run.failed = node.name
            if armed:
                _take_back(host, trial)


def _activate(content: bytes, names: list[str]) -> PyinfraCommand:
    return root(
        f"umask 077; mkdir -p /run/netplan; base64 -d > {state.TRIED}; {state.activate(names)}",
        stdin=files.encoded(content),
    )


def _keep(content: bytes, trial: Trial) -> PyinfraCommand:
    return trial.keep(
        f"umask 077; new=$(mktemp /etc/netplan/.{state.FILE}.XXXXXX); base64 -d > $new; chmod 600 $new; sync $new; "
        f"mv -fT $new {state.KEPT}; rm -f {state.TRIED}; sync /etc/netplan",
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


def _take_back(host: Host, trial: Trial) -> None:
    """The change was not proven: take it back now, and say how that went."""
    try:
        done = trial.revert_now(host)
    except OSError:
        done = False
    if done:
        host.log("the old network is back")
    else:
        host.log_styled(
            f"the old network could not be brought back from here; the node does it itself within {trial.seconds} s",
            fg="red",
            log_func=logger.error,
        )

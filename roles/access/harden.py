"""sshd takes keys only: tried, proven by a new login, then kept; one node at a time."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from roles.access import sshd
from roles.access.view import SSHD, SSHD_LINES, TRIAL, View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report
from sparkrack.ops.second import ask_anew
from sparkrack.ops.shell import root
from sparkrack.ops.trial import Trial

ATTEMPTS = 3
"""How often a new login is tried, a second apart: sshd closes its port for a moment when it reads its files anew. Not
more: OpenSSH 9.8 and later shuts a source out that fails too often."""


@dataclass
class Run:
    """The node of this run that did not let us in anew, after which no other is touched."""

    failed: str | None = None


_runs: WeakKeyDictionary[State, Run] = WeakKeyDictionary()


@operation()
def harden(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """One node's sshd, as one change on trial.

    + rack: whose `access.hardening` says it
    + node: the one this host is
    + seconds: how long the node waits for proof
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    run = _runs.setdefault(host.state, Run())
    wanted = sshd.dropin(rack)
    try:
        view = View(rack, node, probe.read(host, "access"))
        before = view.reading.content(sshd.DROPIN)
        tried = view.reading.content(sshd.AT_BOOT) is not None
        busy = view.reading.content(TRIAL.script) is not None
        faults = sshd.faults(rack, view.reading.text(SSHD))
        obstacles = sshd.obstacles(rack, view.reading.text(SSHD_LINES))
        in_order = before == wanted and (wanted is None or view.kept_by_root(sshd.DROPIN))
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"access: {unknown}; nothing was changed")
        return
    if busy:
        obstacles.append(TRIAL.busy)
    if before == wanted and not obstacles:
        obstacles += [
            f"sshd -T shows {fault} in spite of {sshd.DROPIN}: another file is read before it" for fault in faults
        ]
    if run.failed:
        obstacles = [f"not touched, since {run.failed} failed and nodes change one at a time", *obstacles]
    if obstacles:
        yield refusal.refuse(host, *(f"access: {obstacle}" for obstacle in obstacles))
        return
    if in_order and not tried:
        host.noop("sshd takes keys only" if wanted else "sshd is left alone")
        return
    probe.forget(host)
    report.show(host, sshd.DROPIN, before, wanted)
    report.tell(host, faults)
    report.restart(host, f"reload {sshd.UNIT}: it reads its files only then; who is logged in stays so")
    yield from _on_trial(host, run, view, before, wanted, seconds)


def _on_trial(
    host: Host, run: Run, view: View, before: bytes | None, wanted: bytes | None, seconds: int
) -> Generator[PyinfraCommand, None, None]:
    """The change, between the arming of the node's own clock and its end."""
    trial = Trial(TRIAL.name, sshd.revert(before), seconds)
    armed = kept = False
    try:
        yield files.put(sshd.AT_BOOT, sshd.at_boot(before), mode="644")
        yield trial.arm()
        armed = True
        if wanted is None:
            yield root(f"rm -f {sshd.DROPIN}; sshd -t")
        else:
            yield files.put(sshd.DROPIN, wanted, mode="644", check=sshd.check())
        # systemd has sent its signal when it answers; sshd acts on it a moment later.
        yield root(f"{sshd.reload()}; sleep 1")
        yield FunctionCommand(_prove, (sshd.proof(view.rack, str(view.node.address)),), {})
        yield trial.keep(f"rm -f {sshd.AT_BOOT}", stdin="")
        kept = True
    finally:
        # pyinfra ends an operation at its first failing command by closing this generator.
        if host.state.is_executing and not kept:
            run.failed = view.node.name
            if armed:
                trial.take_back(host, "the old sshd configuration")


def _prove(state: State, host: Host, script: str) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    """A new login works, and sshd does what is declared."""
    output = ["the proof could not be run"]
    for attempt in range(ATTEMPTS):
        time.sleep(1 if attempt else 0)
        try:
            fine, said = ask_anew(host, script)
        except OSError as error:
            fine, said = False, [str(error)]
        if fine:
            return True
        output = said or output
    for line in output:
        host.log_styled(f"not proven: {line}", fg="red", log_func=logger.error)
    return False

"""sshd accepts keys only: tested and confirmed by a new login; one node at a time."""

from __future__ import annotations

import time
from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from core.model import Node, Rack
from core.ops import announce, host_facts, refusals, remote_files
from core.ops.reconnect import run_on_new_connection
from core.ops.rollback import PendingChange
from core.ops.rollout import rollout
from core.ops.shell import sudo_script
from core.probes.protocol import UnknownError
from core.util.event import Action, Event, EventKind
from core.util.managed_file import ManagedFile
from roles.access import sshd_config
from roles.access.facts import SSHD, SSHD_LINES, TRIAL, AccessFacts

ATTEMPTS = 3
"""Number of tries of a new login, a second apart: sshd closes its port for a moment when it reads its files again. Not
more: OpenSSH 9.8 and later blocks a source that fails too often.
"""


@operation()
def harden(rack: Rack, node: Node, seconds: int) -> Generator[PyinfraCommand, None, None]:
    """Change the sshd of one node, as one pending change.

    + rack: its `access.hardening` is the desired state
    + node: the one this host is
    + seconds: how long the node waits for the confirmation
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    progress = rollout(host, "access")
    wanted = sshd_config.dropin(rack)
    try:
        view = AccessFacts(host_facts.read(host, "access"), rack, node)
        before = view.reading.content(sshd_config.DROPIN)
        tried = view.reading.content(sshd_config.AT_BOOT) is not None
        busy = view.reading.content(TRIAL.script) is not None
        faults = sshd_config.effective_problems(rack, view.reading.text(SSHD))
        obstacles = sshd_config.dropin_blockers(rack, view.reading.text(SSHD_LINES))
        in_order = not view.stale([wanted]) if wanted else before is None
    except (UnknownError, ValueError) as unknown:
        yield refusals.fail_unknown(host, unknown)
        return
    if busy:
        obstacles.append(TRIAL.busy)
    after = wanted.content if wanted else None
    if before == after and not obstacles:
        obstacles += [
            f"sshd -T shows {fault.message} in spite of {sshd_config.DROPIN}: another file is read before it"
            for fault in faults
        ]
    if progress.blockers or obstacles:
        yield refusals.refuse(host, *progress.blockers, *obstacles)
        return
    if in_order and not tried:
        host.noop("sshd takes keys only" if wanted else "sshd is left alone")
        return
    host_facts.invalidate(host)
    announce.announce_diff(host, sshd_config.DROPIN, before, after)
    announce.announce_change(host, faults)
    reason = "it reads its files only then; who is logged in stays so"
    reload = Event(EventKind.RESTART, subject=sshd_config.UNIT, action=Action.RELOAD, detail=reason)
    announce.announce_change(host, [reload])
    with progress.step(host, node.name):
        yield from _on_trial(host, view, before, wanted, seconds)


def _on_trial(
    host: Host, view: AccessFacts, before: bytes | None, wanted: ManagedFile | None, seconds: int
) -> Generator[PyinfraCommand, None, None]:
    """The change, between the arming of the node's own clock and its end."""
    trial = PendingChange(TRIAL.name, sshd_config.revert(before), seconds)
    put = sudo_script(f"rm -f {sshd_config.DROPIN}; sshd -t") if wanted is None else remote_files.put_managed(wanted)
    changes = (
        put,
        # systemd has sent its signal when it answers; sshd acts on it a moment later.
        sudo_script(f"{sshd_config.reload()}; sleep 1"),
        FunctionCommand(_prove_login, (sshd_config.proof(view.rack, str(view.node.address)),), {}),
        trial.keep(f"rm -f {sshd_config.AT_BOOT}", stdin=""),
    )
    yield remote_files.put_managed(sshd_config.at_boot(before))
    yield from trial.attempt(host, changes, "the old sshd configuration")


def _prove_login(state: State, host: Host, script: str) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    """A new login works, and sshd does what is declared."""
    output = ["the proof could not be run"]
    for attempt in range(ATTEMPTS):
        time.sleep(1 if attempt else 0)
        try:
            fine, reported = run_on_new_connection(host, script)
        except OSError as error:
            fine, reported = False, [str(error)]
        if fine:
            return True
        output = reported or output
    for line in output:
        host.log_styled(f"not proven: {line}", fg="red", log_func=logger.error)
    return False

"""Arm the guard that looks at what is available, and install the launch step."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.memory import gate, guard, owned, units
from roles.memory.live import GUARD, WANTS
from roles.memory.view import View
from sparkrack.fleet import Rack
from sparkrack.ops import probe, refusal, report

MARK = "guard"


@operation()
def arm(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Keep the guard running with the rack's floor, or no guard at all where there is none.

    + rack: whose `memory.floor` says how much must stay available
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "memory"))
        now = view.live.group(GUARD)
        stale = view.stale(guard.files(rack))
        pending = f"memory-{MARK}" in view.live.pending
        why = guard.restart(rack, now, pending, bool(stale or now.dropins)) if rack.memory.floor else None
        obstacle = guard.obstacle(rack, view.live, view.total_kb, view.available_kb) if why else None
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"memory: {unknown}; nothing was changed")
        return
    if obstacle:
        yield refusal.refuse(host, obstacle)
        return
    if not rack.memory.floor:
        yield from _remove(host, view)
        return
    if not why and now.enabled:
        host.noop("the guard is armed")
        return
    probe.forget(host)
    report.tell(host, [f"move {path} to the backups: it changes {GUARD}" for path in now.dropins])
    report.tell(host, owned.in_words(stale, view.said))
    report.restart(host, why)
    report.tell(host, [] if now.enabled else [f"enable {GUARD}"])
    yield units.mark(MARK)
    if now.dropins:
        yield units.aside(now.dropins)
    yield from units.put(stale)
    yield units.taken_up(MARK, f"systemctl restart {GUARD}" if why else "", enable=GUARD)


def _remove(host: Host, view: View) -> Generator[PyinfraCommand, None, None]:
    now = view.live.group(GUARD)
    pending = f"memory-{MARK}" in view.live.pending
    if not (now.there or now.enabled or now.dropins or pending or view.there(guard.UNIT, guard.SCRIPT)):
        host.noop("there is no guard")
        return
    probe.forget(host)
    report.tell(host, [f"stop and remove {GUARD}: memory.floor is false"])
    yield units.mark(MARK)
    if now.dropins:
        yield units.aside(now.dropins)
    # `systemctl disable` refuses when somebody has removed the unit and left its link.
    link = f"{owned.UNITS}/{WANTS[GUARD]}/{GUARD}"
    gone = f"systemctl stop {GUARD} 2>/dev/null || true; rm -f {link} {guard.UNIT} {guard.SCRIPT}"
    yield units.taken_up(MARK, f"{gone}; systemctl daemon-reload")


@operation()
def install(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Put the program there that makes room before a launch. It is not run.

    + rack: whose name stands in it
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "memory"))
        stale = view.stale([gate.script(rack)])
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"memory: {unknown}; nothing was changed")
        return
    if not stale:
        host.noop("the launch step is there")
        return
    probe.forget(host)
    report.tell(host, owned.in_words(stale, view.said))
    yield from units.put(stale)

"""Bound all containers of a node together."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.memory import ceiling, owned, units
from roles.memory.live import CGROUPS
from roles.memory.view import View
from sparkrack.fleet import SLICE, Rack
from sparkrack.ops import probe, refusal, report
from sparkrack.ops.shell import root

MARK = "ceiling"


@operation()
def bound(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Keep the slice of all containers: its unit, started from boot on, and its limits live.

    + rack: whose `docker.memory` says how much
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "memory"))
        now = view.live.group(SLICE)
        stale = view.stale([ceiling.unit(rack)])
        wrong = ceiling.wrong(rack, now)
        changes, notes = ceiling.changes(rack, now), ceiling.notes(rack, view.total_kb)
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"memory: {unknown}; nothing was changed")
        return
    for line in notes:
        report.warn(host, line)
    reload = bool(stale or now.dropins or f"memory-{MARK}" in view.live.pending)
    if not (reload or wrong) and now.there and now.enabled:
        host.noop("all containers together are bounded, live and at boot")
        return
    probe.forget(host)
    report.tell(host, [f"move {path} to the backups: it changes {SLICE}" for path in now.dropins])
    report.tell(host, owned.in_words(stale, view.said))
    report.tell(host, changes if wrong or not now.there else [])
    if not now.enabled:
        report.tell(host, [f"enable {SLICE}"])
    report.tell(host, view.live.unread(MARK))
    if reload:
        yield units.mark(MARK)
    if now.dropins:
        yield units.aside(now.dropins)
    yield from units.put(stale)
    if reload:
        yield units.taken_up(MARK, enable="" if now.enabled else SLICE)
    elif not now.enabled:
        yield root(f"systemctl enable --quiet {SLICE}")
    if not now.there:
        yield root(f"systemctl start {SLICE}; cat {CGROUPS}/{SLICE}/memory.max > /dev/null")
    for file, wanted in wrong.items():
        # systemd knows the new value by now but leaves the control group as it is until it next looks (measured).
        yield root(f"echo {wanted} > {CGROUPS}/{SLICE}/{file}")

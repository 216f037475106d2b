"""Keep a node's daemons alive, and in memory, when memory is gone."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.memory import owned, protect, units
from roles.memory.live import CGROUPS, SYSTEM
from roles.memory.view import View
from sparkrack.fleet import Rack
from sparkrack.ops import probe, refusal, report
from sparkrack.ops.shell import root

MARK = "protect"


@operation()
def shield(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Keep some memory for sshd, the network and logins, and the kernel's killer away from them; restarts nothing.

    + rack: whose name stands in the files
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "memory"))
        stale = view.stale(protect.dropins(rack))
        kept, exposed = protect.kept_wrong(view.live), protect.exposed(view.live)
        changes = protect.changes(view.live)
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"memory: {unknown}; nothing was changed")
        return
    reload = bool(stale or f"memory-{MARK}" in view.live.pending)
    if not (reload or kept or exposed):
        host.noop("sshd, the network and logins are protected")
        return
    probe.forget(host)
    report.tell(host, [*owned.in_words(stale, view.said), *changes, *view.live.unread(MARK)])
    if reload:
        yield units.mark(MARK)
    yield from units.put(stale)
    if reload:
        yield units.taken_up(MARK)
    for unit, wanted in kept.items():
        group = unit if unit == SYSTEM else f"{SYSTEM}/{unit}"
        yield root(f"echo {wanted} > {CGROUPS}/{group}/memory.min")
    for daemon in exposed:
        # A running process keeps its score whatever its unit says, and sshd is not restarted for it.
        main = f"$(systemctl show --property=MainPID --value {daemon.unit})"
        yield root(f'p={main}; [ "$p" -gt 0 ]; echo {daemon.score} > "/proc/$p/oom_score_adj"')

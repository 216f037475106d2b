"""The end of a run that changes the watch: it waits until Prometheus has scraped what the run has started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from core.model import Rack
from core.model.fields import seconds
from core.ssh.port_forward import forwarded_ports
from core.util.progress import ProgressObserver
from roles.watch import desired
from roles.watch.options import WatchOptions
from sparkrack.engine.plan import CHANGES, Plan
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError, ScrapeTarget, SilentError

POLL_SECONDS = 1.0
START_SECONDS = 60
"""Seconds until Prometheus, after its start, has read what it kept and answers."""
INTERVALS = 3
"""Scrape intervals after that: a target waits one for its first scrape, which may fail while a program starts."""


@dataclass(frozen=True)
class AwaitedScrapes:
    """What the Prometheus of the node `server` has to scrape. `targets`: by job and node, which is empty for a program
    of the server; whether a scrape has to succeed, as where the run has started the program. `restarted`: Prometheus
    itself was started or has read its files again, so that it evaluates its rules again.
    """

    server: str
    targets: Mapping[tuple[str, str], bool]
    restarted: bool


def awaited_scrapes(rack: Rack, plan: Plan) -> AwaitedScrapes | None:
    """Return what Prometheus has to scrape after a plan was carried out; None when the plan does not change the watch
    or the server is not a node of the rack.
    """
    server = desired.server(rack) if rack.declared(WatchOptions) else None
    changed = [
        (host.name, event)
        for host in plan.hosts
        if host.name in rack.nodes
        for step, event in host.events(*CHANGES)
        if step.role == "watch"
    ]
    if server is None or not changed:
        return None
    on_server = {event.subject for name, event in changed if name == server.name}
    restarted = desired.unit(desired.PROMETHEUS) in on_server
    targets = {("node", name): name in dict(changed) for name in rack.nodes if restarted or name in dict(changed)}
    for job, package in (("prometheus", desired.PROMETHEUS), ("alertmanager", desired.ALERTMANAGER)):
        started = desired.unit(package) in on_server
        if started or restarted:
            targets[job, ""] = started
    return AwaitedScrapes(server.name, targets, restarted)


def unscraped(rack: Rack, plan: Plan, stopped: Callable[[], bool], progress: ProgressObserver) -> str:
    """Wait, after a plan was carried out, until Prometheus has scraped what it has started; return an empty text, else
    one line with what was not scraped, and why. A plan that does not change the watch costs no command.
    """
    awaited, port = awaited_scrapes(rack, plan), desired.PROMETHEUS_PORT
    if awaited is None:
        return ""
    progress.phase("wait until Prometheus has scraped what was started")
    with forwarded_ports(rack, awaited.server, (port,)) as forward:
        api = PrometheusApi(f"http://{awaited.server}:{port}", partial(forward.socket, port))
        return wait_for_scrapes(rack, api, awaited, stopped)


def wait_for_scrapes(
    rack: Rack,
    api: PrometheusApi,
    awaited: AwaitedScrapes,
    stopped: Callable[[], bool],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait until each target has a scrape that began after this call, and return an empty text; else one line with what
    was not scraped, and why. `stopped`: whether the operator wants no longer to wait.

    A Prometheus that this run has not started and that does not answer, or has no such target, is not waited for.
    """
    until = now() + START_SECONDS + INTERVALS * seconds(rack.options(WatchOptions).interval)
    start: float | None = None
    while True:
        try:
            start = api.time() if start is None else start
            missing = list(_missing_scrapes(api, awaited, start))
            final = not awaited.restarted and all(reason == _NO_TARGET for _, reason in missing)
        except PrometheusError as fault:
            missing = [("Prometheus", str(fault))]
            final = not awaited.restarted and isinstance(fault, SilentError)
        if not missing:
            return ""
        if final or stopped() or now() >= until:
            return "not scraped yet: " + "; ".join(f"{name}: {reason}" for name, reason in missing)
        sleep(POLL_SECONDS)


_NO_TARGET = "is not a target of Prometheus"


def _missing_scrapes(api: PrometheusApi, awaited: AwaitedScrapes, start: float) -> Iterator[tuple[str, str]]:
    """Yield what was not scraped or evaluated since `start`, by the clock of the server, and why."""
    found = {(one.labels.get("job", ""), one.labels.get("node", "")): one for one in api.targets()}
    for (job, node), must_be_up in awaited.targets.items():
        reason = _missing_reason(found.get((job, node)), start, must_be_up=must_be_up)
        if reason:
            yield node or job, reason
    if awaited.restarted and api.rules_evaluated() <= start:
        yield "alerts", "are not evaluated"


def _missing_reason(target: ScrapeTarget | None, start: float, *, must_be_up: bool) -> str:
    """Return why a target counts as not scraped; empty for one that was."""
    if target is None:
        return _NO_TARGET
    if must_be_up and target.health == "down":
        return target.error or "is down"
    return "" if target.scraped > start else "no scrape since it was started"

"""Nodes that request a restart, and their reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from core.util.event import Action, EventKind
from sparkrack.engine.plan import HostState, Plan
from sparkrack.rebuild.model import Request
from sparkrack.status.model import Status


class ReasonUnknownError(Exception):
    """It is unknown whether a node should be restarted."""


def questions(request: Request, driver: bool) -> tuple[tuple[str, ...], ...]:
    """Return the commands whose JSON has the reasons: status for requests of packages; plan, if the rack declares a
    driver and manages it, for a kernel or a driver that is installed and does not run.
    """
    which = ("--rack", request.file, *(word for name in request.nodes for word in ("--limit", name)), "--json")
    status = ("status", *which)
    return (status, ("plan", *which, "--only", "driver")) if driver else (status,)


def reasons(nodes: Iterable[str], status: bytes, plan: bytes | None) -> dict[str, str]:
    """Return why each node should be restarted; a node without a reason is not included. Raises ReasonUnknownError."""
    try:
        seen = {one.name: one for one in Status.model_validate_json(status).nodes}
        planned = {one.name: one for one in Plan.model_validate_json(plan).hosts} if plan is not None else {}
    except ValidationError:
        raise ReasonUnknownError("whether a restart is required is unknown: no answer of status or plan") from None
    found = {}
    for name in nodes:
        asked = seen[name].reboot if name in seen else None
        if asked is None:
            raise ReasonUnknownError(f"{name}: whether it should be restarted is unknown; see sparkrack status")
        lines = []
        if plan is not None:
            machine = planned.get(name)
            if machine is None or machine.state not in (HostState.IN_SYNC, HostState.CHANGES):
                raise ReasonUnknownError(
                    f"{name}: whether its driver requires a restart is unknown; see sparkrack plan"
                )
            notes = machine.events(EventKind.NOTE)
            lines = [
                event.detail or event.message
                for step, event in notes
                if step.role == "driver" and event.action is Action.REBOOT
            ]
        if lines or asked:
            found[name] = "; ".join(lines) or "a package or a new machine ID asks for it"
    return found

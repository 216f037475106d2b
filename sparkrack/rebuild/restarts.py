"""Which nodes say that they should be restarted, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from sparkrack.ops.account import Sort
from sparkrack.rebuild.model import Request
from sparkrack.run.plan import Plan, Standing
from sparkrack.status.model import Status

_SAID = "reboot required: "


class UntoldError(Exception):
    """A node does not say whether it should be restarted."""


def questions(request: Request, driver: bool) -> tuple[tuple[str, ...], ...]:
    """The verbs whose JSON tells: status for what packages asked for; plan, if the rack declares a driver and keeps it,
    for a kernel or a driver that is installed and does not run."""
    which = ("--rack", request.file, *(word for name in request.nodes for word in ("--limit", name)), "--json")
    status = ("status", *which)
    return (status, ("plan", *which, "--only", "driver")) if driver else (status,)


def reasons(nodes: Iterable[str], status: bytes, plan: bytes | None) -> dict[str, str]:
    """Why each node should be restarted; one that need not is not there. Raises UntoldError."""
    try:
        seen = {one.name: one for one in Status.model_validate_json(status).nodes}
        planned = {one.name: one for one in Plan.model_validate_json(plan).machines} if plan is not None else {}
    except ValidationError:
        raise UntoldError("whether a restart is required cannot be told: no answer of status or plan") from None
    found = {}
    for name in nodes:
        asked = seen[name].reboot if name in seen else None
        if asked is None:
            raise UntoldError(f"{name}: whether it should be restarted cannot be told; see sparkrack status")
        lines = []
        if plan is not None:
            machine = planned.get(name)
            if machine is None or machine.standing not in (Standing.IN_SYNC, Standing.CHANGES):
                raise UntoldError(f"{name}: whether its driver asks for a restart cannot be told; see sparkrack plan")
            lines = [said.text.partition(_SAID)[2] for _, said in machine.said(Sort.NOTE) if _SAID in said.text]
        if lines or asked:
            found[name] = "; ".join(lines) or "a package or a new machine ID asks for it"
    return found

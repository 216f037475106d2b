"""A run of `sparkrack accept`: the claims that reading shows, then those that a spare cage shows."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from core.claims.claims import Claim
from core.model import Rack, SecretError
from core.routeros.errors import CheckError, SwitchError, UnreadableError
from core.routeros.session import open_connection
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.provenance import Origin
from sparkrack.accept.bundle import Recording
from sparkrack.accept.claim_results import claim_result, unknown
from sparkrack.accept.collect import ORDER, accept
from sparkrack.accept.model import AcceptReport, ClaimResult, MachineResult
from sparkrack.accept.trials import SAFE_MODE, TRIED, Spare, run_trial, safe_mode_trial

Lock = Callable[[], AbstractContextManager[Callable[[], str]]]
"""Takes the lock of the rack; it gives what returns why nothing more may be changed, empty as long as it may."""


def run_accept(
    rack: Rack,
    machines: Sequence[str],
    claims: Sequence[Claim],
    origin: Origin,
    spare: Spare | None = None,
    *,
    lock: Lock = lambda: nullcontext(lambda: ""),
    recording: Recording | None = None,
    progress: ProgressObserver = NO_PROGRESS,
) -> AcceptReport:
    """Observe these claims on these hosts.

    spare: the cage on which settings are changed, for the level `change`; None: nothing is changed. lock: held while
    settings are changed. Raises SpareError when the cage is not spare, or the switch is not proven to be as it was.
    """
    looked = accept(
        rack, machines, [claim for claim in claims if claim.level == "look"], origin, progress, recording=recording
    )
    results = {one.id: one for one in looked.claims}
    tried = [claim for claim in claims if claim.id in TRIED]
    if spare and tried:
        results |= {one.id: one for one in _observe_by_changes(tried, spare, lock, progress)}
    for claim in claims:
        if claim.id not in results:
            results[claim.id] = claim_result(claim, (), _by_hand_reason(claim))
    return looked.model_copy(
        update={
            "level": "change" if spare else "look",
            "claims": tuple(sorted((results[claim.id] for claim in claims), key=lambda one: ORDER.index(one.result))),
        }
    )


def _by_hand_reason(claim: Claim) -> str:
    if claim.id in TRIED:
        return "it needs sparkrack accept --level change --spare SWITCH/CAGE"
    return f"by hand: {claim.observe}"


def _observe_by_changes(
    claims: Sequence[Claim], spare: Spare, lock: Lock, progress: ProgressObserver
) -> Iterator[ClaimResult]:
    host = spare.switch.name
    progress.phase("take the lock of the rack")
    with lock() as stopped:
        for number, claim in enumerate(claims, 1):
            progress.phase(f"observe {claim.id} on {spare.cage} ({number} of {len(claims)})", [host])
            found = _try_claim(claim.id, spare, stopped)
            progress.finish(host, found.result)
            yield claim_result(claim, (found,))


def _try_claim(claim: str, spare: Spare, stopped: Callable[[], str]) -> MachineResult:
    """Observe one claim over a connection of its own. Raises SpareError."""
    run = f"accept-{secrets.token_hex(4)}"
    try:
        with open_connection(spare.switch, lambda _: None) as line:
            line.stopped = stopped
            return safe_mode_trial(spare, line, run) if claim == SAFE_MODE else run_trial(claim, spare, line, run)
    except (SwitchError, SecretError, UnreadableError, CheckError) as fault:
        return unknown(spare.switch.name, str(fault))

"""A run of `sparkrack accept`: the claims level after level, without those that an earlier run of it has settled."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from core.claims.claims import Claim
from core.model import Rack, SecretError
from core.routeros.errors import CheckError, SwitchError, UnreadableError
from core.routeros.session import open_connection
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.provenance import Origin
from sparkrack.accept.bundle import Recording
from sparkrack.accept.collect import ORDER, accept
from sparkrack.accept.evaluate import claim_result, unknown
from sparkrack.accept.load.part import Hand, HeldLock, LoadRun
from sparkrack.accept.load.restart import await_restart
from sparkrack.accept.load.run import MISSING, LoadOptions, load_results
from sparkrack.accept.model import AcceptReport, ClaimResult, MachineResult, RunLevel
from sparkrack.accept.trials import LOST_SESSION_SECONDS, SAFE_MODE, TRIED, Spare, run_trial, safe_mode_trial

Lock = Callable[[], AbstractContextManager[Callable[[], str]]]
"""Takes the lock of the rack; it gives what returns why nothing more may be changed, empty as long as it may."""


class Keeper(Protocol):
    """What keeps results as they are found."""

    @property
    def found(self) -> dict[str, ClaimResult]: ...

    @property
    def begun(self) -> Mapping[str, str]: ...

    def keep(self, result: ClaimResult) -> None: ...

    def begin(self, part: str, data: str) -> None: ...


@dataclass
class Forgetful:
    """Keeps nothing: for a run without a folder."""

    found: dict[str, ClaimResult] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)

    def keep(self, result: ClaimResult) -> None:
        """Do nothing."""

    def begin(self, part: str, data: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class LoadMeans:
    """What the level `load` needs. `lock`: holds the lock of the rack; `say`: prints a line."""

    options: LoadOptions
    lock: Callable[[], AbstractContextManager[HeldLock]]
    hand: Hand
    say: Callable[[str], None]


@dataclass(frozen=True)
class AcceptOptions:
    """What a run may do. spare: the cage on which settings are changed; absent: none. session_seconds: how long the
    switch may take to undo the changes of a lost session. load: for the level `load`.
    """

    level: RunLevel = "look"
    spare: Spare | None = None
    session_seconds: float = LOST_SESSION_SECONDS
    load: LoadMeans | None = None


def run_accept(
    rack: Rack,
    machines: Sequence[str],
    claims: Sequence[Claim],
    origin: Origin,
    options: AcceptOptions,
    keeper: Keeper,
    *,
    lock: Lock = lambda: nullcontext(lambda: ""),
    recording: Recording | None = None,
    progress: ProgressObserver = NO_PROGRESS,
) -> AcceptReport:
    """Observe these claims on these hosts.

    lock: held while settings are changed. Raises SpareError when the spare cage is not spare, or the switch is not
    proven to be as it was; LoadError when a node or a cable is not; OSError when a result cannot be kept.
    """
    if options.load:
        await_restart(rack, keeper, progress, options.load.say)
    done = dict(keeper.found)
    reading = [claim for claim in claims if claim.level == "look" and (recording is not None or claim.id not in done)]
    looked = accept(rack, machines, reading, origin, progress, recording=recording)
    results = {one.id: one for one in looked.claims}
    for one in results.values():
        keeper.keep(one)
    for claim in claims:
        if claim.id in done and claim.id not in results:
            results[claim.id] = done[claim.id]
    tried = [claim for claim in claims if claim.id in TRIED and claim.id not in results]
    if options.spare and tried:
        for one in _changes(tried, options.spare, options.session_seconds, lock, progress):
            keeper.keep(one)
            results[one.id] = one
    todo = [claim for claim in claims if claim.load and claim.id not in results and _asked(claim, options)]
    if options.load and todo:
        for one in _load(rack, machines, todo, options.load, keeper, progress):
            keeper.keep(one)
            results[one.id] = one
    for claim in claims:
        if claim.id not in results:
            results[claim.id] = claim_result(claim, (), _reason(claim, options))
    return AcceptReport(
        rack=rack.rack,
        origin=origin,
        level=options.level,
        hosts=looked.hosts,
        claims=tuple(sorted((results[claim.id] for claim in claims), key=lambda one: ORDER.index(one.result))),
    )


def _reason(claim: Claim, options: AcceptOptions) -> str:
    if options.level == "look" or (options.level == "change" and claim.level == "load"):
        return ""
    if claim.load:
        return f"it needs sparkrack accept --level load {MISSING[claim.load]}"
    return "it needs --spare SWITCH/CAGE" if claim.id in TRIED else f"by hand: {claim.observe}"


def _asked(claim: Claim, options: AcceptOptions) -> bool:
    return bool(options.load and claim.load and options.load.options.asks_for(claim.load))


def _load(
    rack: Rack,
    machines: Sequence[str],
    claims: Sequence[Claim],
    means: LoadMeans,
    keeper: Keeper,
    progress: ProgressObserver,
) -> Iterator[ClaimResult]:
    nodes = [name for name in rack.nodes if name in machines]
    excluded = frozenset({*rack.nodes, *rack.switches} - set(machines))
    progress.phase("take the lock of the rack")
    with means.lock() as held:
        run = LoadRun(rack, nodes, excluded, progress, means.say, held, means.hand, keeper)
        yield from load_results(claims, means.options, run)


def _changes(
    claims: Sequence[Claim], spare: Spare, session_seconds: float, lock: Lock, progress: ProgressObserver
) -> Iterator[ClaimResult]:
    host = spare.switch.name
    progress.phase("take the lock of the rack")
    with lock() as stopped:
        for number, claim in enumerate(claims, 1):
            progress.phase(f"observe {claim.id} on {spare.cage} ({number} of {len(claims)})", [host])
            found = _try(claim.id, spare, session_seconds, stopped)
            progress.finish(host, found.result)
            yield claim_result(claim, (found,))


def _try(claim: str, spare: Spare, session_seconds: float, stopped: Callable[[], str]) -> MachineResult:
    """Observe one claim over a connection of its own. Raises SpareError."""
    run = f"accept-{secrets.token_hex(4)}"
    try:
        with open_connection(spare.switch, lambda _: None) as line:
            line.stopped = stopped
            if claim == SAFE_MODE:
                return safe_mode_trial(spare, line, run, session_seconds)
            return run_trial(claim, spare, line, run)
    except (SwitchError, SecretError, UnreadableError, CheckError) as fault:
        return unknown(spare.switch.name, str(fault))

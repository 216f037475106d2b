"""Observations of claims that change a switch: on one spare cage, inside of a transaction that is always rolled back.

Each trial is a transaction of `switch.transaction` that never releases safe mode: the rollback timer is armed, safe
mode is taken, the rows are written, the answer is observed, and safe mode is unrolled. Afterwards everything that a run
manages on the switch is read again and compared. Only link settings of the spare cage are written: its `l2mtu` would
take every port down. `safe_mode_trial` is the one trial that cuts its connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from core.hardware.cage_kinds import QSFP56_DD, cage_kind, lane_interface
from core.hardware.switch_model import CageKind
from core.model import Rack, Switch
from core.model.errors import counted
from core.routeros.change_plan import ChangeBatch, ChangePlan
from core.routeros.diff import DesiredRow, RowChange, diff
from core.routeros.errors import CheckError, RefusedError, SentenceError, SwitchError, UnreadableError
from core.routeros.menus import BRIDGE_HOST, ETHERNET, QOS_PORT, SCHEDULER, SCRIPT, Menu, Row, Sentence
from core.routeros.reading import Ask, SwitchReading
from core.routeros.rollback_disarm import disarm_others
from core.routeros.rollback_timer import PREFIX, is_timer
from core.routeros.safe_mode import TAKE, free, held
from core.routeros.sentences import writes
from core.routeros.session import SessionConnection, SwitchConnection
from core.routeros.values import ValueKind, canonical, gbps
from core.util.command_error import CommandError
from sparkrack.accept.claim_results import not_shown, observed, refuted, unknown
from sparkrack.accept.model import MachineResult
from switch.cages import SPEED, lanes_of
from switch.executor import execute
from switch.leg_health import LINKED
from switch.preconditions import change_blockers, wrong_unit
from switch.target_state import DeclaredTarget
from switch.transaction import Check, Say, Step, Transaction, second_session

LINK_SECONDS, LINK_POLL_SECONDS = 60.0, 1.0
"""Limit in seconds for a leg to come up, and the interval at which its state is read."""
LOST_SESSION_SECONDS = 600.0
"""Seconds within which RouterOS undoes the changes of a lost session."""
SCHEDULE_SECONDS, SCHEDULE_POLL_SECONDS = 15.0, 0.5
"""Limit in seconds for a schedule with an interval of one second to run, and the interval at which it is read."""
FUSE_SECONDS = 300.0
"""Seconds until the rollback timer acts: longer than a trial."""
_SCRIPT = "sparkrack-accept"
_SCRIPT_BYTES = 7168

_GBPS = {word: rate for words in SPEED.values() for (rate, _lanes), word in words.items()}
"""The rate of a leg (Gb/s) by the speed that is forced on its first lane."""

Result = Callable[[str, str], MachineResult]


class SpareError(CommandError):
    """The cage is not spare, or the switch is not as it was; the text is one line."""


class _TrialOverError(CheckError):
    """A trial has observed what there is: the transaction ends here, and is rolled back."""


@dataclass(frozen=True)
class Spare:
    """A cage of a switch that no node needs."""

    rack: Rack
    switch: Switch
    cage: str

    @property
    def lanes(self) -> tuple[str, ...]:
        """Its lanes, by the names from the factory."""
        return lanes_of(self.cage)


def spare_of(rack: Rack, text: str, machines: Collection[str]) -> Spare:
    """Return the spare cage that a text like `crs812/qsfp56-dd-2` names, of a switch among these machines. Raises
    SpareError.
    """
    name, _, cage = text.partition("/")
    switch = rack.switches.get(name)
    if switch is None:
        raise SpareError(
            f"{text}: rack.yaml has no switch {name}; name a cage like {next(iter(rack.switches), 'NAME')}/CAGE"
        )
    several = [one for one, kind in switch.hardware.cages.items() if kind.lanes > 1]
    if cage not in several:
        raise SpareError(f"{text}: {name} has no cage {cage} of several lanes; it has {', '.join(several)}")
    if cage in switch.cages:
        free_ones = [one for one in several if one not in switch.cages]
        rest = f"{name}/{free_ones[0]} is not declared" if free_ones else "every cage is declared"
        raise SpareError(f"{text}: rack.yaml declares {cage}, so it is not spare; {rest}")
    if name not in machines:
        raise SpareError(f"{text}: {name} is not among the selected hosts")
    return Spare(rack, switch, cage)


@dataclass(frozen=True)
class _Target:
    """The rows of a trial as the goal of a transaction; everything that a run manages must be the same afterwards."""

    spare: Spare
    rows: tuple[tuple[Menu, DesiredRow], ...]
    words: ClassVar[str] = "in the trial"

    @property
    def switch(self) -> Switch:
        return self.spare.switch

    @property
    def _declared_target(self) -> DeclaredTarget:
        return DeclaredTarget(self.spare.rack, self.spare.switch)

    @property
    def menus(self) -> tuple[Menu, ...]:
        return tuple(dict.fromkeys((*self._declared_target.menus, ETHERNET, *(menu for menu, _ in self.rows))))

    def read(self, ask: Ask) -> SwitchReading:
        found = self._declared_target.read(ask)
        more = {
            menu.path: tuple(ask(menu.sentence(found.release))) for menu in self.menus if menu.path not in found.tables
        }
        return SwitchReading(found.release, {**found.tables, **more}, found.absent)

    def plan(self, reading: SwitchReading) -> ChangePlan:
        if reasons := wrong_unit(self.switch, reading):
            raise RefusedError(reasons)
        changes = tuple(change for menu, row in self.rows for change in diff(menu, (row,), reading.rows(menu)))
        if reasons := tuple(change_blockers(changes, reading)):
            raise RefusedError(reasons)
        return ChangePlan((ChangeBatch("trial", f"restarts cage {self.spare.cage}", changes),) if changes else ())


@dataclass(frozen=True)
class _TrialTransaction(Transaction):
    """A transaction that ends with an observation, never with a release of safe mode. `relies`: the rollback timer must
    have run before; false where that is what is observed.
    """

    attempt: Callable[[SwitchConnection], None] = lambda _line: None
    relies: bool = True

    def steps(self) -> Iterator[Step]:
        yield Check("looking whether safe mode is free", free)
        yield Check("logging in a second time", second_session)
        yield Check("disarming what earlier runs left", disarm_others)
        yield Check("arming the rollback timer", self._arm_rollback_timer)
        if self.relies:
            yield Check("waiting until the rollback timer has run", self._wait_for_schedule)
        yield Say("taking safe mode", TAKE)
        yield Check("looking whether safe mode is ours", held)
        yield Check("observing", self.attempt)


@dataclass(frozen=True)
class Trial:
    """How a claim is observed. `rows`: what is written, of a spare cage. `observe`: reads what there is then; it gets
    the time of the last write. `refusal`: what it means that the switch refuses a sentence. `fuse`: seconds until the
    rollback timer acts. `kind`: the claim is about cages of this kind; None: about all of several lanes. `relies`: as
    that of the transaction.
    """

    rows: Callable[[Spare], tuple[tuple[Menu, DesiredRow], ...]]
    observe: Callable[[SwitchConnection, Spare, Watch], MachineResult]
    refusal: Result = refuted
    fuse: float = FUSE_SECONDS
    kind: CageKind | None = None
    relies: bool = True


@dataclass
class Watch:
    """What was seen before the first write of a trial, and when its last write was answered. `legs`: the speed that the
    trial forces on a lane, by the name from the factory.
    """

    name: str
    legs: Mapping[str, str]
    downs: Mapping[str, str] = field(default_factory=dict)
    written: float = 0.0


def run_trial(claim: str, spare: Spare, line: SessionConnection, run: str) -> MachineResult:
    """Observe a claim on a spare cage and roll everything back.

    line: an open connection. run: the name of this run, for its rows on the switch. Raises SpareError when the switch
    is not proven to be as it was: nothing more may be tried then. Raises SwitchError and UnreadableError before the
    first write.
    """
    trial, host = TRIALS[claim], spare.switch.name
    if trial.kind and trial.kind is not cage_kind(spare.cage):
        return not_shown(host, f"the declared spare cage {spare.cage} is not a {trial.kind.name} cage")
    target = _Target(spare, trial.rows(spare))
    before = target.read(lambda sentence: line.talk(*sentence))
    _check_spare(spare, before, line)
    legs = {row.key[0]: str(row.fields["speed"]) for _, row in target.rows if "speed" in row.fields}
    watch = Watch(f"{PREFIX}{run}", legs)
    try:
        todo = target.plan(before)
    except RefusedError as refusal:
        return not_shown(host, f"not tried: {refusal}")
    found: list[MachineResult] = []

    def attempt(open_: SwitchConnection) -> None:
        watch.downs = _link_losses(open_)
        try:
            for write in writes(todo.changes, before.release):
                open_.talk(*write.sentence)
            watch.written = time.monotonic()
            found.append(trial.observe(open_, spare, watch))
        except SentenceError as refusal:
            found.append(trial.refusal(host, f"the switch refuses it: {refusal}"))
        raise _TrialOverError("observed")

    transaction = _TrialTransaction(
        *(watch.name, target, before, todo), fuse=trial.fuse, attempt=attempt, relies=trial.relies
    )
    outcome = execute(transaction, line)
    _check_unchanged(target, before, line, outcome.text)
    return found[0] if found else unknown(host, outcome.text)


def safe_mode_trial(spare: Spare, line: SessionConnection, run: str) -> MachineResult:
    """Change the spare cage under safe mode, cut the connection without a release, and wait until the switch has undone
    it, at most LOST_SESSION_SECONDS. Raises as `run_trial`.
    """
    host = spare.switch.name
    target = _Target(spare, _other_fec(spare, line))
    before = target.read(lambda sentence: line.talk(*sentence))
    _check_spare(spare, before, line)
    try:
        todo = target.plan(before)
    except RefusedError as refusal:
        return not_shown(host, f"not tried: {refusal}")
    cut: list[float] = []

    def attempt(open_: SwitchConnection) -> None:
        for write in writes(todo.changes, before.release):
            open_.talk(*write.sentence)
        cut.append(time.monotonic())
        line.close()
        raise _TrialOverError("the connection was cut")

    fuse = LOST_SESSION_SECONDS + FUSE_SECONDS
    transaction = _TrialTransaction(f"{PREFIX}{run}", target, before, todo, fuse=fuse, attempt=attempt)
    outcome = execute(transaction, line, timeout=LOST_SESSION_SECONDS)
    waited = time.monotonic() - cut[0] if cut else 0.0
    try:
        with line.second() as session:
            stays = target.plan(target.read(lambda sentence: session.talk(*sentence))).empty
            if stays:
                # Safe mode is free and undoes nothing any more, so the old values are written again.
                for change in todo.changes:
                    session.talk(f"{change.menu.path}/set", f"=.id={change.id}", *_old_values(change))
    except (SwitchError, UnreadableError, RefusedError) as fault:
        raise SpareError(f"{host} cannot be read again: {fault}; {outcome.text}") from None
    _check_unchanged(target, before, line, outcome.text)
    if stays:
        return refuted(host, f"the change stays {waited:.0f} s after the connection was cut")
    if not cut:
        return unknown(host, outcome.text)
    return observed(host, f"the change was undone within {waited:.0f} s after the connection was cut")


def _old_values(change: RowChange) -> Iterator[str]:
    """The words that set the fields of a changed row as they were; one that was not printed had its default."""
    for one in change.fields:
        old = change.menu.fields[one.name].default if one.old is None else one.old
        if old is not None:
            yield f"={one.name}={old}"


def _check_spare(spare: Spare, reading: SwitchReading, line: SwitchConnection) -> None:
    """Raise SpareError when a host is reached through the cage."""
    names = {reading.ethernet[lane]["name"]: lane for lane in spare.lanes if lane in reading.ethernet}
    rows = [row for name in names for row in line.talk(*BRIDGE_HOST.sentence(), f"?on-interface={name}")]
    behind = [row for row in rows if row.get("on-interface") in names and row.get("local") not in ("true", "yes")]
    if behind:
        raise SpareError(
            f"{spare.switch.name}/{spare.cage} is not spare: {counted(len(behind), 'host')} behind "
            f"{names[behind[0]['on-interface']]}; nothing was changed"
        )


def _check_unchanged(target: _Target, before: SwitchReading, line: SessionConnection, text: str) -> None:
    """Raise SpareError unless everything that a run manages is as before, and nothing of a trial is left, as a new
    session reads it.
    """
    try:
        with line.second() as session:
            now = target.read(lambda sentence: session.talk(*sentence))
            left = [
                row.get("name", "")
                for menu in (SCHEDULER, SCRIPT)
                for row in session.talk(f"{menu.path}/print", "=.proplist=name")
                if is_timer(name := row.get("name", "")) or name.startswith(_SCRIPT)
            ]
    except (SwitchError, UnreadableError) as fault:
        raise SpareError(f"{target.switch.name} cannot be read again: {fault}; {text}") from None
    if left or not now.same(before, target.menus):
        what = f"{', '.join(left)} is left on it" if left else "it does not read as before"
        raise SpareError(f"{target.switch.name} is not proven to be as it was: {what}; {text}")


def _lane_row(spare: Spare, lane: int, **fields: str) -> tuple[Menu, DesiredRow]:
    return ETHERNET, DesiredRow(
        (lane_interface(spare.cage, lane),), {k.replace("_", "-"): v for k, v in fields.items()}
    )


def _forced_lane(spare: Spare, lane: int, shape: tuple[int, int], fec: str = "fec91") -> tuple[Menu, DesiredRow]:
    return _lane_row(spare, lane, disabled="no", auto_negotiation="no", speed=SPEED["copper"][shape], fec_mode=fec)


def _other_fec(spare: Spare, line: SwitchConnection) -> tuple[tuple[Menu, DesiredRow], ...]:
    """The first lane with another FEC than it has."""
    rows = line.talk(f"{ETHERNET.path}/print", "=.proplist=default-name,fec-mode")
    now = {row.get("default-name", ""): row.get("fec-mode") for row in rows}.get(spare.lanes[0])
    return (_lane_row(spare, 1, fec_mode="off" if now == "fec91" else "fec91"),)


def _illegal_lanes(spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
    """100G on two lanes, from the second lane on, where no leg begins."""
    return _lane_row(spare, 1, disabled="yes"), _forced_lane(spare, 2, (100, 2))


def _breakout_rows(*names: str) -> Callable[[Spare], tuple[tuple[Menu, DesiredRow], ...]]:
    """The first of these breakouts that the cage has, as `switch.cages.wanted_lanes` writes it, without sizes."""

    def rows(spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
        breakouts = cage_kind(spare.cage).breakouts
        split = next((breakouts[name] for name in names if name in breakouts), None)
        if split is None:
            return ()
        unused = [lane for lane in range(1, len(spare.lanes) + 1) if lane not in split.lanes]
        companions = [lane for lane in split.lanes if lane not in split.first_lanes]
        return (
            *(_forced_lane(spare, lane, (split.gbps, split.lanes_per_leg)) for lane in split.first_lanes),
            *(_lane_row(spare, lane, disabled="no") for lane in companions),
            *(_lane_row(spare, lane, disabled="yes") for lane in unused),
        )

    return rows


def _rate_row(spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
    return ((QOS_PORT, DesiredRow((spare.lanes[0],), {"egress-rate-queue3": "200G"})),)


def _big_script(_spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
    line = "# sparkrack accept: a script of this size is what a rollback of all cages needs\n"
    source = line * (_SCRIPT_BYTES // len(line) + 1)
    return ((SCRIPT, DesiredRow((_SCRIPT,), {"policy": "read", "source": source})),)


def _forced_first(spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
    return (_forced_lane(spare, 1, (100, 2)),)


def _forced_auto(spare: Spare) -> tuple[tuple[Menu, DesiredRow], ...]:
    return (_forced_lane(spare, 1, (100, 2), "auto"),)


def _read_monitor(line: SwitchConnection, lanes: Sequence[str]) -> dict[str, Row]:
    """The monitor's row of each of these lanes (default names)."""
    rows = line.talk(f"{ETHERNET.path}/print", "=.proplist=.id,name,default-name")
    ids = {row["name"]: (row[".id"], row["default-name"]) for row in rows if row.get("default-name") in lanes}
    sentence: Sentence = (
        f"{ETHERNET.path}/monitor",
        f"=numbers={','.join(number for number, _ in ids.values())}",
        "=once=",
        "=.proplist=name,status,rate,fec,sfp-module-present",
    )
    return {ids[row["name"]][1]: row for row in line.talk(*sentence) if row.get("name") in ids}


def _has_module(line: SwitchConnection, spare: Spare) -> bool:
    return any(row.get("sfp-module-present") in ("true", "yes") for row in _read_monitor(line, spare.lanes).values())


def _link_losses(line: SwitchConnection) -> dict[str, str]:
    """How often each interface lost its link."""
    rows = line.talk("/interface/print", "=.proplist=default-name,name,link-downs")
    return {row.get("default-name") or row.get("name", ""): row["link-downs"] for row in rows if "link-downs" in row}


def _accepted_illegal(line: SwitchConnection, spare: Spare, _watch: Watch) -> MachineResult:
    host, lane = spare.switch.name, spare.lanes[1]
    text = f"{lane} accepts {SPEED['copper'][100, 2]}"
    if not _has_module(line, spare):
        return not_shown(host, f"{text}; whether it would link needs a cable in {spare.cage}")
    row = _wait_for_links(line, [lane])[lane]
    linked = row.get("status") == LINKED
    return (refuted if linked else observed)(host, f"{text}; its status is {row.get('status') or 'absent'}")


def _unset_speed(line: SwitchConnection, spare: Spare, _watch: Watch) -> MachineResult:
    host = spare.switch.name
    rows = line.talk(f"{ETHERNET.path}/print", "=.proplist=.id,default-name")
    number = next(row[".id"] for row in rows if row.get("default-name") == spare.lanes[0])
    try:
        line.talk(f"{ETHERNET.path}/unset", f"=numbers={number}", "=value-name=speed")
    except SentenceError as refusal:
        return observed(host, f"unset of speed: {refusal}")
    return refuted(host, "unset of speed is accepted")


def _shown_fec(line: SwitchConnection, spare: Spare, _watch: Watch) -> MachineResult:
    """100G on two lanes is 50 Gb/s a lane, where auto is fec91."""
    host, lane = spare.switch.name, spare.lanes[0]
    if not _has_module(line, spare):
        return not_shown(host, f"fec-mode=auto is accepted; the FEC of a link needs a cable in {spare.cage}")
    row = _wait_for_links(line, [lane])[lane]
    if row.get("status") != LINKED:
        return not_shown(host, f"{lane} has no link with fec-mode=auto; its status is {row.get('status') or 'absent'}")
    fec = row.get("fec") or "absent"
    return (observed if fec == "fec91" else refuted)(
        host, f"{lane} with fec-mode=auto at 100G on two lanes: fec is {fec}"
    )


def _legs_link(line: SwitchConnection, spare: Spare, watch: Watch) -> MachineResult:
    """The legs of the breakout that was written link."""
    host, legs = spare.switch.name, watch.legs
    if not _has_module(line, spare):
        return not_shown(host, f"{', '.join(legs)} accept their speed; whether they link needs a cable in {spare.cage}")
    found = _wait_for_links(line, list(legs))
    seconds = time.monotonic() - watch.written
    text = "; ".join(f"{leg}: {row.get('status')}, {row.get('rate') or 'no rate'}" for leg, row in found.items())
    rates = {leg: gbps(row.get("rate")) for leg, row in found.items() if row.get("status") == LINKED}
    if other := [leg for leg, rate in rates.items() if rate is not None and rate != _GBPS[legs[leg]]]:
        return refuted(host, f"{text}; {', '.join(other)} links at another rate than {legs[other[0]]}")
    if legs and all(rates.get(leg) for leg in legs):
        return observed(host, f"{text}; after {seconds:.0f} s")
    # A cable that fits no such breakout links as little.
    return not_shown(host, f"{text}; a cable of this breakout, plugged at both ends, shows it")


def _judge_restarts(line: SwitchConnection, spare: Spare, watch: Watch) -> MachineResult:
    """Writing a lane takes no port outside of its cage down."""
    host, now = spare.switch.name, _link_losses(line)
    others = [name for name, count in now.items() if name not in spare.lanes and count != watch.downs.get(name)]
    if not now:
        return unknown(host, "/interface reports no link-downs")
    if others:
        return refuted(host, f"a write to {spare.lanes[0]} took down {', '.join(others)}")
    return not_shown(
        host,
        f"a write to {spare.lanes[0]} took down no port outside of {spare.cage}; its legs and l2mtu were not tried",
    )


def _judge_schedule(line: SwitchConnection, spare: Spare, watch: Watch) -> MachineResult:
    """The schedule of this very transaction runs."""
    host, until = spare.switch.name, time.monotonic() + SCHEDULE_SECONDS
    while True:
        rows = line.talk(f"{SCHEDULER.path}/print", f"?name={watch.name}")
        row = rows[0] if rows else {}
        count = row.get("run-count", "")
        text = f"interval={row.get('interval')}: run-count is {count or 'absent'}"
        if count.isdecimal() and int(count) > 0:
            return observed(host, text)
        if time.monotonic() >= until:
            return refuted(host, f"{text} after {SCHEDULE_SECONDS:g} s") if count.isdecimal() else unknown(host, text)
        time.sleep(SCHEDULE_POLL_SECONDS)


def _whole_script(line: SwitchConnection, spare: Spare, _watch: Watch) -> MachineResult:
    host, ((_, want),) = spare.switch.name, _big_script(spare)
    source = str(want.fields["source"])
    rows = line.talk(f"{SCRIPT.path}/print", "=.proplist=source,invalid", f"?name={_SCRIPT}")
    found = rows[0] if rows else {}
    text = f"{len(found.get('source', ''))} of {len(source)} bytes are read back, invalid is {found.get('invalid')}"
    whole = found.get("source", "").strip() == source.strip() and found.get("invalid") in (None, "false", "no")
    return (observed if whole else refuted)(host, text)


def _printed_rate(line: SwitchConnection, spare: Spare, _watch: Watch) -> MachineResult:
    host = spare.switch.name
    rows = line.talk(f"{QOS_PORT.path}/print", "=.proplist=name,egress-rate-queue3", f"?name={spare.lanes[0]}")
    printed = rows[0].get("egress-rate-queue3", "") if rows else ""
    try:
        whole = canonical(ValueKind.RATE, printed) == canonical(ValueKind.RATE, "200G")
    except ValueError:
        whole = False
    return (observed if whole else refuted)(host, f"egress-rate-queue3=200G is printed as {printed or 'nothing'}")


def _wait_for_links(line: SwitchConnection, lanes: Sequence[str]) -> dict[str, Row]:
    """The monitor's rows when all of these lanes have a link, or after LINK_SECONDS."""
    until = time.monotonic() + LINK_SECONDS
    while True:
        found = _read_monitor(line, lanes)
        linked = all(row.get("status") == LINKED for row in found.values())
        if linked or time.monotonic() >= until:
            return {lane: found.get(lane, {}) for lane in lanes}
        time.sleep(LINK_POLL_SECONDS)


TRIALS: Mapping[str, Trial] = {
    # claim: switch.lanes.illegal-pair
    "switch.lanes.illegal-pair": Trial(_illegal_lanes, _accepted_illegal),
    # claim: switch.lanes.unset-speed
    "switch.lanes.unset-speed": Trial(_forced_first, _unset_speed, unknown),
    # claim: switch.fec.auto
    "switch.fec.auto": Trial(_forced_auto, _shown_fec),
    # claim: switch.lanes.restart
    "switch.lanes.restart": Trial(_forced_first, _judge_restarts, unknown),
    # claim: switch.scheduler.startup
    "switch.scheduler.startup": Trial(_forced_first, _judge_schedule, unknown, relies=False),
    # claim: switch.rollback.script-size
    "switch.rollback.script-size": Trial(_big_script, _whole_script),
    # claim: switch.qos.egress-rate
    "switch.qos.egress-rate": Trial(_rate_row, _printed_rate),
    # claim: switch.breakout.linked
    "switch.breakout.linked": Trial(_breakout_rows("4x100G"), _legs_link, kind=QSFP56_DD),
    # claim: switch.breakout.4x50g
    "switch.breakout.4x50g": Trial(_breakout_rows("4x50G"), _legs_link, kind=QSFP56_DD),
    # claim: switch.breakout.1x100g
    "switch.breakout.1x100g": Trial(_breakout_rows("1x100G"), _legs_link, kind=QSFP56_DD),
    # claim: switch.breakout.first-lane
    "switch.breakout.first-lane": Trial(_breakout_rows("8x50G", "2x50G"), _legs_link),
}
"""How claims are observed, by id; SAFE_MODE has a trial of its own."""
# claim: switch.safe-mode.api
SAFE_MODE = "switch.safe-mode.api"
TRIED = (*TRIALS, SAFE_MODE)
"""The claims that a spare cage shows."""

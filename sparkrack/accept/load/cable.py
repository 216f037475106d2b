"""A cable that the operator pulls and plugs in again, watched at both of its ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from core.model import Address, Leg, Port, Rack
from core.model.addressing import reachable
from core.probes.links import parse_ethtool_of_all
from core.probes.protocol import UnknownError
from core.routeros.menus import ETHERNET, Row, Sentence
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from sparkrack.accept.checks import REFUSED
from sparkrack.accept.evaluate import not_shown, observed, refuted, unknown
from sparkrack.accept.load.part import Hand, LoadError, LoadRun, Results, working
from sparkrack.accept.model import MachineResult
from switch.leg_health import LINKED, monitor
from switch.verify_client import SwitchChecks

PART = "pull"
CLAIMS = ("fabric.pulled-cable", "switch.link-log")
HAND_SECONDS = 300.0
"""Seconds for a movement of the hand."""
LINK_SECONDS = 60.0
"""Seconds for a link to go and to come, after it."""
POLL_SECONDS = 0.5
AGAIN_SECONDS = 5.0
"""Seconds between two attempts to reach the switch again after a session broke."""
_LOG = ("/log/print", "=.proplist=.id,time,message")
_DOWN_TIME = ("/interface/print", "=.proplist=name,last-link-down-time")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d")


def port_of(rack: Rack, text: str) -> Port:
    """Return the cabled port that a text like `spark2/1` names. Raises LoadError."""
    node, _, number = text.partition("/")
    if node not in rack.nodes:
        raise LoadError(f"{text}: {rack.source.name} has no node {node}; name a port like {next(iter(rack.nodes))}/1")
    cabled = [port for port in rack.cabling.ports_of(node) if rack.cabling.leg_of(port)]
    found = next((port for port in cabled if str(port.number) == number), None)
    if found is None:
        names = ", ".join(f"{node}/{port.number}" for port in cabled)
        rest = f"cables to a switch are in {names or 'none of its ports'}"
        raise LoadError(f"{text}: {rack.source.name} declares no cable from it to a switch; {rest}")
    return found


@dataclass
class _Seen:
    """When each end was first seen as wanted, when frames passed, and when the operator confirmed; seconds of the
    monotonic clock. `last`: whether each end had a link in the end; None for unknown.
    """

    ends: dict[str, float] = field(default_factory=dict)
    last: Mapping[str, bool | None] = field(default_factory=dict)
    frames: float | None = None
    confirmed: float | None = None


class _SwitchSession:
    """Questions to the switch of a leg. A session that broke is opened again, since the hand may take minutes, but not
    one whose login was refused.
    """

    def __init__(self, rack: Rack, leg: Leg) -> None:
        self._rack, self._leg = rack, leg
        self.checks = self._new()
        self._again: float | None = None

    def ask(self, sentence: Sentence) -> tuple[Row, ...]:
        """The answer to one question. Raises UnknownError."""
        if self._again is not None and time.monotonic() >= self._again:
            self.close()
            self.checks, self._again = self._new(), None
        try:
            return self.checks.ask(sentence)
        except UnknownError as fault:
            if self.checks.lost and self._again is None and not REFUSED.search(fault.reason):
                self._again = time.monotonic() + AGAIN_SECONDS
            raise

    def row(self) -> Row:
        """The switch's own row of the leg. Raises UnknownError."""
        rows = self.ask((f"{ETHERNET.path}/print", "=.proplist=.id,name,default-name"))
        row = next((one for one in rows if one.get("default-name") == self._leg.interface), {})
        if not row.get("name") or not row.get(".id"):
            raise UnknownError(f"{self._leg}: the switch has no such interface", "the switch has no such interface")
        return row

    def linked(self) -> bool | None:
        """Whether the leg has a link; None for unknown."""
        try:
            rows = self.ask(monitor([self.row()[".id"]]))
        except UnknownError:
            return None
        status = rows[0].get("status") if rows else None
        return None if status is None else status == LINKED

    def close(self) -> None:
        """End the session. Never raises."""
        self.checks.close()

    def _new(self) -> SwitchChecks:
        return SwitchChecks(self._rack, self._rack.switches[self._leg.switch])


@dataclass(frozen=True)
class _Cable:
    """A cable from a node to a switch. `flows`: from each of its halves to a neighbour."""

    rack: Rack
    port: Port
    leg: Leg
    shell: RootShell
    look: _SwitchSession
    flows: Sequence[tuple[Address, Address]]

    @property
    def name(self) -> str:
        return f"{self.port.node}/{self.port.number}"

    def ends(self) -> dict[str, bool | None]:
        """Whether each half of the node, and the leg of the switch, has a link now; None for unknown."""
        carriers = self._carriers()
        halves = {f"{half.interface} of {self.port.node}": carriers.get(half.interface) for half in self.port.halves}
        return {**halves, str(self.leg): self.look.linked()}

    def frames_pass(self) -> bool:
        """Whether full frames pass from each of its halves to a neighbour and back."""
        size = self.rack.fabric.mtu - 28
        pings = " && ".join(
            f"ping -q -c 1 -W 1 -M do -s {size} -I {here.interface.ip} {there.interface.ip} > /dev/null 2>&1"
            for here, there in self.flows
        )
        try:
            return bool(self.shell.run(pings).rc == 0)
        except UnreachableError:
            return False

    def _carriers(self) -> Mapping[str, bool | None]:
        """The carrier of each half, None for unknown; of none when the node does not answer."""
        names = [half.interface for half in self.port.halves]
        loop = f"for i in {' '.join(names)}; do [ ! -e /sys/class/net/$i ] || timeout 5 ethtool $i || exit 9; done"
        try:
            done = self.shell.run(loop)
            reports = parse_ethtool_of_all(str(done.stdout))
        except (UnreachableError, ValueError):
            return {}
        # DGX OS may remove the function of a port without a cable.
        return {name: reports[name].carrier if name in reports else False for name in names} if done.rc == 0 else {}


# claim: fabric.pulled-cable, switch.link-log
def pulled_cable(run: LoadRun, port: Port) -> Results:
    """Ask for the cable to be pulled and plugged in again. Raises LoadError when it is not proven to be in again."""
    if busy := working(run.rack, [port.node], containers=True):
        return _everywhere(port.node, f"not tried: {busy[port.node]}")
    with _opened(run, port) as cable:
        _as_an_earlier_run_left_it(run, cable)
        if not cable.flows:
            return _everywhere(port.node, "not tried: no other selected node shares a subnet with it")
        if unread := _unread(cable.ends()):
            return _everywhere(port.node, f"not tried: {unread}")
        if not all(cable.ends().values()) or not cable.frames_pass():
            return _everywhere(port.node, f"not tried: {cable.name} does not carry frames before the cable is pulled")
        log = _LinkLog(cable)
        run.held.check()
        run.marks.begin(PART, cable.name)
        try:
            out = _watched(cable, run.hand, f"pull the cable of {cable.name} now ({cable.leg}); ENTER when done", False)
            inn = _plugged_in(run, cable)
        except BaseException:
            run.say(f"plug the cable of {cable.name} in again ({cable.leg}), unless it is in")
            raise
        return {"fabric.pulled-cable": [_judged(cable, out, inn)], "switch.link-log": [log.judged()]}


@contextmanager
def _opened(run: LoadRun, port: Port) -> Iterator[_Cable]:
    leg = run.rack.cabling.leg_of(port)
    if leg is None:
        raise LoadError(f"{port.node}/{port.number}: its cable leads to no switch")
    flows: dict[Address, Address] = {}
    for here, there in reachable(run.rack, port.node):
        if here.half in port.halves and there.half.node in run.nodes:
            flows.setdefault(here, there)
    with (
        open_shells(run.rack, [port.node], 30) as shells,
        closing(_SwitchSession(run.rack, leg)) as look,
    ):
        yield _Cable(run.rack, port, leg, shells[port.node], look, tuple(flows.items()))


def _as_an_earlier_run_left_it(run: LoadRun, cable: _Cable) -> None:
    """Ask for the cable to be plugged in, when a run that was ended asked to pull it and it has no link."""
    if run.marks.begun.get(PART) == cable.name and False in cable.ends().values():
        run.say(f"an earlier run that was ended asked to pull the cable of {cable.name}; it has no link")
        _plugged_in(run, cable)


def _plugged_in(run: LoadRun, cable: _Cable) -> _Seen:
    seen = _watched(cable, run.hand, f"plug the cable of {cable.name} in again ({cable.leg}); ENTER when done", True)
    if not all(seen.last.values()):
        dark = " and ".join(name for name, linked in seen.last.items() if linked is False)
        found = "; ".join(filter(None, (f"no link at {dark}" if dark else "", _unread(seen.last))))
        raise LoadError(
            f"the cable of {cable.name} is not proven to be in again, {LINK_SECONDS:.0f} s after it was asked for: "
            f"{found}; look at both of its ends"
        )
    return seen


def _watched(cable: _Cable, hand: Hand, text: str, wanted: bool) -> _Seen:
    """Ask the hand, and watch until both ends are as wanted (with a link: and frames pass), or for too long."""
    hand.ask(text)
    seen, asked = _Seen(), time.monotonic()
    while True:
        seen.last = ends = cable.ends()
        now = time.monotonic()
        for name, state in ends.items():
            if state is wanted:
                seen.ends.setdefault(name, now)
            else:
                seen.ends.pop(name, None)
        both = len(seen.ends) == len(ends)
        if wanted and both and seen.frames is None and cable.frames_pass():
            seen.frames = time.monotonic()
        if seen.confirmed is None and hand.done():
            seen.confirmed = time.monotonic()
        complete = both and (not wanted or seen.frames is not None)
        waited = now - (asked if seen.confirmed is None else seen.confirmed)
        if (complete and seen.confirmed is not None) or waited > (
            HAND_SECONDS if seen.confirmed is None else LINK_SECONDS
        ):
            return seen
        time.sleep(POLL_SECONDS)


def _judged(cable: _Cable, out: _Seen, back: _Seen) -> MachineResult:
    node = cable.port.node
    if not out.ends and out.confirmed is None:
        return unknown(node, f"{cable.name}: the pull was not confirmed")
    if unread := _unread(out.last):
        return unknown(node, f"{cable.name} was pulled; {unread}")
    if not out.ends:
        return unknown(node, f"{cable.name}: the pull was confirmed, and both ends kept their link")
    if stays := [name for name in out.last if name not in out.ends]:
        return refuted(node, f"{cable.name} was pulled, and {stays[0]} shows a link {LINK_SECONDS:.0f} s later")
    gap = max(out.ends.values()) - min(out.ends.values())
    moments = [*back.ends.values(), *([] if back.confirmed is None else [back.confirmed])]
    begin = min(moments)
    text = f"{cable.name}: both ends lost their link within {gap:.1f} s; plugged in again, "
    text += f"both have it after {max(back.ends.values()) - begin:.1f} s"
    if back.frames is None or back.frames - begin > LINK_SECONDS:
        return refuted(node, f"{text}; full frames do not pass within {LINK_SECONDS:.0f} s")
    return observed(node, f"{text} and full frames pass after {back.frames - begin:.1f} s")


def _unread(ends: Mapping[str, bool | None]) -> str:
    """Which ends could not be read; empty for none."""
    names = " and ".join(name for name, linked in ends.items() if linked is None)
    return f"whether {names} has a link is unknown" if names else ""


class _LinkLog:
    """The log of the switch about the leg: what is new in it since before the pull."""

    def __init__(self, cable: _Cable) -> None:
        self._cable, self._name, self._why, self._refused = cable, "", "", False
        self._before, self._down = self._read()

    def judged(self) -> MachineResult:
        """What the log shows of the pull."""
        cable, host = self._cable, self._cable.leg.switch
        rows, down = self._read()
        if self._why:
            return (refuted if self._refused else unknown)(host, self._why)
        name = self._name
        new = [row for number, row in rows.items() if number not in self._before]
        lines = [row for row in new if re.match(rf"{re.escape(name)} link (down|up)\b", row.get("message", ""))]
        texts = [f"{row.get('time', 'no time')} {row['message']}" for row in lines]
        wrong = [
            f"no line `{name} link {word}`"
            for word in ("down", "up")
            if not any(row["message"].startswith(f"{name} link {word}") for row in lines)
        ]
        wrong += [f"time {row.get('time')!r}" for row in lines if not _TIME.fullmatch(row.get("time", ""))]
        # Whole seconds: of a link that went down twice in one, it stays the same.
        again = any(_second(row) == down[-8:] for row in lines if row["message"].startswith(f"{name} link down"))
        if not _TIME.fullmatch(down) or (down == self._down and not again):
            wrong.append(f"last-link-down-time is {down or 'absent'}")
        text = "; ".join([*wrong, *texts, f"last-link-down-time {down or 'absent'}"])
        if wrong:
            return refuted(host, text)
        way = cable.look.checks.way
        if cable.rack.switches[host].reader is None:
            return not_shown(host, f"read over {way}: rack.yaml declares no reader; {text}")
        return observed(host, f"{way}: {text}")

    def _read(self) -> tuple[Mapping[str, Row], str]:
        """The lines of the log by their number, and when the leg last lost its link."""
        try:
            self._name = self._cable.look.row()["name"]
            rows = self._cable.look.ask(_LOG)
            interfaces = self._cable.look.ask(_DOWN_TIME)
        except UnknownError as fault:
            self._why, self._refused = fault.reason, bool(REFUSED.search(fault.reason))
            return {}, ""
        down = next((row.get("last-link-down-time", "") for row in interfaces if row.get("name") == self._name), "")
        return {row.get(".id", ""): row for row in rows}, down


def _second(row: Row) -> str:
    """The time of day of a line of the log."""
    return row.get("time", "")[-8:]


def _everywhere(node: str, text: str) -> Results:
    return {claim: [unknown(node, text)] for claim in CLAIMS}

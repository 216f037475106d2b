"""Collect the evidence about the end of a node's latest boot: from the node if it answers, from the node that receives
its records, and from the switch. Each source may be missing, which is reported. Nothing is changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.model import Node, Rack, reachable
from core.probes.protocol import UnknownError
from core.routeros.menus import RESOURCE, Row
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import NO_PROGRESS, ProgressObserver
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.stream_routes import receiver
from sparkrack.autopsy import parse
from sparkrack.autopsy.evidence import (
    CleanStop,
    Evidence,
    EvidenceSource,
    LegNow,
    LogLine,
    Sample,
    SourceState,
)
from sparkrack.autopsy.parse import EvidenceError
from sparkrack.autopsy.questions import (
    ABSENT,
    BEGAN,
    BOOT,
    CLOCK,
    CONSOLE,
    EARLIER,
    ECHOES,
    EVIDENCE,
    HANGS,
    JOURNAL,
    NODE,
    PEER_ENDS,
    PEER_RING,
    PEER_TIME,
    REMOTE,
    RING,
    echoes,
    of_receiver,
)
from sparkrack.autopsy.verdict import CLOCK_SECONDS, SAME_SECONDS
from switch.verify_client import SwitchChecks

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60.0
"""Seconds for a node to be reached, and for one answer."""
REFUSES = ("Permission denied", "a password is required", "Host key verification failed")
"""What ssh and sudo print about a node that is alive and gives us no shell."""
CONSOLE_SECONDS = 1800.0
"""Seconds before the end of a boot whose lines of netconsole count, where the begin of the boot is unknown."""
MAX_SKEW = 86400.0
"""Seconds. A larger difference is none of two clocks that run: a clock is not set, or a file was written again."""
SWITCH_CLOCK = ("/system/clock/print", "=.proplist=date,time,gmt-offset")
INTERFACES = ("/interface/print", "=.proplist=name,default-name,running,last-link-down-time")
COUNTERS = ("/interface/ethernet/print", "=.proplist=default-name,rx-packet,rx-pause")
COUNTED_SECONDS = 3.0
"""Seconds between two readings of the counters of a leg: a fabric that is in use carries frames in each of them."""
ECHOING_PEERS = 2
"""Nodes that are asked, at most, whether a node answers on the fabric."""
LOG = ("/log/print", "=.proplist=time,topics,message")


@dataclass
class _Answers:
    """Answers of one host. `times`: when they were given, by the operator's clock; `skew`: of its clock, None where it
    is unknown; `gone`: why it does not answer, empty when it does.
    """

    texts: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    skew: float | None = None
    gone: str = ""

    @property
    def earlier_skew(self) -> float | None:
        """The skew of the clock in earlier boots: that of now, unless the clock is not set now."""
        return self.skew if self.skew is None or abs(self.skew) < MAX_SKEW else 0.0

    @property
    def clock_unknown(self) -> bool:
        """Whether it answers, and not what its clock shows."""
        return not self.gone and self.skew is None

    @property
    def note(self) -> str:
        """What a source says of the clock of its host: nothing, or why its times are not used."""
        why = self.failed.get(CLOCK, "`date` printed no time")
        return f"; its clock is unknown ({why}), so its times are not used" if self.clock_unknown else ""


@dataclass
class _Collector:
    """Sources that were asked, in the order of the report."""

    sources: list[EvidenceSource] = field(default_factory=list)

    def read(self, name: str, detail: str, skew: float | None = None) -> None:
        self.sources.append(EvidenceSource(name, SourceState.READ, detail, skew))

    def absent(self, name: str, detail: str) -> None:
        self.sources.append(EvidenceSource(name, SourceState.ABSENT, detail))

    def unknown(self, name: str, detail: str) -> None:
        self.sources.append(EvidenceSource(name, SourceState.UNKNOWN, detail))

    def text(self, name: str, answers: _Answers, key: str, missing: str) -> str | None:
        """Return an answer; None, and a source that is absent or unknown, where there is none."""
        if answers.gone:
            self.unknown(name, answers.gone)
        elif key in answers.absent:
            self.absent(name, missing)
        elif key in answers.failed:
            self.unknown(name, answers.failed[key])
        else:
            return answers.texts[key]
        return None


def collect_evidence(rack: Rack, name: str, progress: ProgressObserver = NO_PROGRESS) -> Evidence:
    """Return the evidence about the end of the latest boot of a node."""
    node, collector = rack.nodes[name], _Collector()
    peer = receiver(rack, node)
    progress.phase("ask the node", [name])
    with open_shells(rack, [name], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
        own = _ask_questions(shells[name], NODE)
    evidence = _of_node(name, own, collector)
    other = _Answers(gone="a rack of one node has no other node that receives its records")
    if peer is not None:
        progress.phase("ask the node that receives its records", [peer.name])
        with open_shells(rack, [peer.name], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
            other = _ask_questions(shells[peer.name], of_receiver(name, evidence.ended))
    where = f" at {peer.name}" if peer else ""
    options = rack.declared(BlackboxOptions)
    if options is not None and options.remote == "plain":
        evidence = replace(evidence, forgeable=evidence.forgeable | {"remote journal"})
    evidence = _of_receiver(evidence, own, other, where, collector)
    evidence = _of_hangs(evidence, own, collector)
    for switch in rack.switches:
        if all(port.node != name for _, port in rack.cabling.legs(switch)):
            continue
        progress.phase("ask the switch", [switch])
        evidence = _of_switch(rack, evidence, switch, collector)
    if not evidence.alive:
        progress.phase("ask other nodes whether it answers on the fabric", [name])
        evidence = _of_fabric(rack, evidence, peer, collector)
    return replace(evidence, sources=tuple(collector.sources))


def _ask_questions(shell: RootShell, questions: Mapping[str, str]) -> _Answers:
    found = _Answers()
    # The login comes first, which takes seconds on a busy node: the clock would be asked at the end of them.
    for key, question in {"": ":", **questions}.items():
        begin = time.time()
        try:
            done = shell.run(question)
        except UnreachableError as gone:
            found.gone = found.gone or gone.why
            return found
        found.times[key] = middle = (begin + time.time()) / 2
        if done.rc == ABSENT:
            found.absent.add(key)
        elif done.rc != 0:
            lines = done.stderr_bytes.decode(errors="replace").strip().splitlines()
            found.failed[key] = lines[-1] if lines else f"exit {done.rc}"
        else:
            found.texts[key] = done.stdout_bytes.decode(errors="replace")
            if key == CLOCK:
                shown = _parse_seconds(found.texts[key], math.nan)
                found.skew = None if math.isnan(shown) else shown - middle
    return found


def _parse_seconds(text: str, otherwise: float) -> float:
    try:
        found = float(text.strip())
    except ValueError:
        return otherwise
    return found if math.isfinite(found) else otherwise


def _number_or_none(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _of_node(name: str, own: _Answers, collector: _Collector) -> Evidence:
    refuses = any(text in own.gone for text in REFUSES)
    evidence = Evidence(node=name, asked=time.time(), alive=not own.gone or refuses)
    if own.gone:
        collector.unknown("node", f"{'refuses our login' if refuses else 'does not answer'}: {own.gone}")
        return evidence
    note = "" if own.earlier_skew == own.skew else "; the times of its earlier boots are taken as right"
    collector.read("node", f"answers{note}{own.note}", own.skew)
    uptime = _parse_seconds(own.texts.get(BEGAN, "").partition(" ")[0], -1)
    evidence = replace(
        evidence,
        boot=own.texts.get(BOOT, "").strip() or None,
        began=own.times[BEGAN] - uptime if uptime >= 0 else None,
        clocks_unknown=(name,) if own.clock_unknown else (),
    )
    text = collector.text("boot evidence", own, EVIDENCE, "this boot has collected none")
    if text is not None:
        try:
            return _of_boot(evidence, parse.boot_evidence(text), own, collector)
        except EvidenceError as fault:
            collector.unknown("boot evidence", str(fault))
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            collector.unknown(
                "boot evidence", f"evidence.json has a part of an unexpected form: {type(fault).__name__}"
            )
    journal = collector.text("journal", own, JOURNAL, "it is in the boot evidence")
    if journal is not None:
        boots = parse.journal(journal, "journal")
        if len(boots) == 1:
            ended, lines = next(iter(boots.items()))
            collector.read("journal", f"{len(lines)} lines of the boot before", own.skew)
            return replace(evidence, ended=ended, lines=_shift_lines(lines, own.earlier_skew))
        collector.absent("journal", "no entry of the boot before")
    return evidence


def _of_boot(evidence: Evidence, found: dict[str, Any], own: _Answers, collector: _Collector) -> Evidence:
    """Add what the node collected when it booted."""
    lines, records = parse.evidence_lines(found), tuple(str(one.get("text", "")) for one in found["pstore"] or ())
    firmware, marker = parse.firmware(found), found["marker"]
    unread = "; ".join(f"{part}: {reason}" for part, reason in (found["unread"] or {}).items())
    began = next((at for boot, at in _boot_times(own.texts.get(EARLIER, "")) if boot == found["before"]), None)
    stopped = parse.moment(marker["time"]) if marker else None
    evidence = replace(
        evidence,
        ended=found["before"] and str(found["before"]),
        ended_began=_by_operator(began, own.earlier_skew),
        clean_stop=CleanStop(_by_operator(stopped, own.earlier_skew), marker["target"]) if marker else None,
        lines=_shift_lines(lines, own.earlier_skew),
        records=records,
        earlier_records=tuple(map(str, found.get("earlier") or ())),
        firmware=firmware,
        hardware=tuple(map(str, found.get("hardware") or ())),
        feeding=_number_or_none(found.get("feeding")),
        shutdown_limit=_number_or_none(found.get("shutdown_limit")),
        pause_limit=_number_or_none(found.get("pause_limit")),
        power_ons=parse.power_ons(found),
    )
    detail = f"{len(lines)} lines, {len(records)} records of a panic, {'a' if marker else 'no'} mark of a shutdown"
    collector.read("boot evidence", detail + (f"; not read: {unread}" if unread else ""), own.skew)
    return evidence


def _boot_times(text: str) -> Iterable[tuple[str, float]]:
    """Yield the boots with evidence and their times, from lines of grep."""
    for line in text.splitlines():
        boot, _, rest = line.partition("/evidence.json:")
        number = rest.partition(":")[2].strip().rstrip(",")
        if rest and (at := parse.moment(_parse_seconds(number, 0.0))) is not None:
            yield boot, at


def _of_receiver(evidence: Evidence, own: _Answers, other: _Answers, where: str, collector: _Collector) -> Evidence:
    """Add what another node has received, and the ring of the node itself."""
    samples, skew = _merge_samples(own, other, where, collector)
    node_skew = skew if own.gone else own.earlier_skew
    remote: dict[str, tuple[LogLine, ...]] = {}
    text = collector.text(f"remote journal{where}", other, REMOTE, "no journal was received")
    if text is not None:
        remote = parse.journal(text, "remote journal")
        count = sum(map(len, remote.values()))
        note = "" if node_skew is not None else "; the node's clock is taken as right" if own.gone else own.note
        (collector.read if count else collector.absent)(f"remote journal{where}", f"{count} lines{note}")
    if node_skew is None and own.gone:
        node_skew = 0.0
    at_end = _skew_at_the_end(evidence, other)
    if own.earlier_skew is not None and at_end is not None and abs(at_end - own.earlier_skew) > CLOCK_SECONDS:
        collector.read(f"clock of the boot that ended{where}", "by the stamp of its last sample", at_end)
        evidence, node_skew = _correct_times(evidence, at_end - own.earlier_skew), at_end
    ended, unset = evidence.ended, _boots_without_clock(remote, samples) - {evidence.boot or ""}
    samples = tuple(one for one in samples if one.time >= parse.CLOCK_SET)
    if ended is None and unset:
        why = f"the clock of the node was not set in boot {', '.join(sorted(unset))}"
        collector.unknown("order of the boots", f"{why}, so which boot ended last is unknown")
    elif ended is None:
        ended = _latest_boot(evidence, remote, samples)
    lines = _shift_lines(remote.get(ended or "", ()), node_skew)
    text = collector.text(f"netconsole{where}", other, CONSOLE, "no line was received")
    console: tuple[LogLine, ...] = ()
    if text is not None:
        console = _shift_lines(parse.netconsole(text), other.earlier_skew)
        collector.read(f"netconsole{where}", f"{len(console)} lines{other.note}", other.skew)
    kept = (
        ()
        if node_skew is None
        else tuple(replace(one, time=one.time - node_skew) for one in samples if one.boot == ended)
    )
    began = evidence.ended_began or _by_operator(_first_sign(ended, remote, samples), node_skew)
    unknown = (*evidence.clocks_unknown, *([where.removeprefix(" at ")] if other.clock_unknown else []))
    evidence = replace(
        evidence,
        ended=ended,
        ended_began=began,
        lines=(*evidence.lines, *lines),
        samples=kept,
        clocks_unknown=unknown,
    )
    evidence = _without_impossible_times(evidence, collector)
    return replace(evidence, lines=(*evidence.lines, *_of_the_end(evidence, console)))


def _skew_at_the_end(evidence: Evidence, other: _Answers) -> float | None:
    """Return the skew of the node's clock at the end of the boot that ended, by the stamp of the receiver of its
    last sample; None: unknown.
    """
    for line in other.texts.get(PEER_ENDS, "").splitlines():
        boot, _, times = line.partition(" ")
        sent, received = (_parse_seconds(time, math.nan) for time in times.partition(" ")[::2])
        if boot == evidence.ended and other.skew is not None and math.isfinite(sent) and math.isfinite(received):
            return sent - received + other.skew
    return None


def _correct_times(evidence: Evidence, later: float) -> Evidence:
    """Return the evidence with the times of the node moved back by so many seconds."""
    mark = evidence.clean_stop
    return replace(
        evidence,
        lines=_shift_lines(evidence.lines, later),
        ended_began=_by_operator(evidence.ended_began, later),
        clean_stop=mark and replace(mark, time=_by_operator(mark.time, later)),
    )


def _without_impossible_times(evidence: Evidence, collector: _Collector) -> Evidence:
    """Return the evidence without the times of the boot that ended, where it ended after the present one began.

    Its clock was ahead then, by an unknown time. The present boot is dated by its uptime.
    """
    sign = evidence.last_sign
    if not evidence.alive or evidence.began is None or sign is None or sign[0] <= evidence.began + CLOCK_SECONDS:
        return evidence
    text = f"its last sign of life is {sign[0] - evidence.began:.0f} s after the begin of the present one"
    collector.unknown("clock of the boot that ended", f"{text}, so its times are not used")
    mark = evidence.clean_stop
    return replace(
        evidence,
        lines=_shift_lines(evidence.lines, None),
        samples=(),
        ended_began=None,
        clean_stop=mark and replace(mark, time=None),
        clocks_unknown=(*evidence.clocks_unknown, f"{evidence.node} in the boot that ended"),
    )


def _boots_without_clock(remote: Mapping[str, tuple[LogLine, ...]], samples: tuple[Sample, ...]) -> set[str]:
    """Return the boots of which everything that was received is from before the clock was set."""
    every = [(boot, line.time is not None) for boot, lines in remote.items() for line in lines]
    every += [(sample.boot, sample.time >= parse.CLOCK_SET) for sample in samples]
    return {boot for boot, _ in every} - {boot for boot, is_set in every if is_set}


def _latest_boot(
    evidence: Evidence, remote: Mapping[str, tuple[LogLine, ...]], samples: tuple[Sample, ...]
) -> str | None:
    """Return the newest boot of which anything was received, other than the present one."""
    found = [(lines[-1].time or 0.0, boot) for boot, lines in remote.items()]
    found += [(sample.time, sample.boot) for sample in samples]
    return max((one for one in found if one[1] != evidence.boot), default=(0.0, None))[1]


def _first_sign(
    ended: str | None, remote: Mapping[str, tuple[LogLine, ...]], samples: tuple[Sample, ...]
) -> float | None:
    """Return when the boot that ended begins in what was received, by the node's clock; None where nothing of an
    earlier boot was received: its first lines may be missing then.
    """
    journal = [(line.time, boot) for boot, lines in remote.items() for line in lines if line.time is not None]
    begins = []
    for times in (journal, [(one.time, one.boot) for one in samples]):
        first = min((at for at, boot in times if boot == ended), default=None)
        if first is not None and any(at < first for at, boot in times if boot != ended):
            begins.append(first)
    return min(begins, default=None)


def _of_the_end(evidence: Evidence, lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """Return the lines of netconsole of the boot that ended: they do not name their boot."""
    until = evidence.began if evidence.alive and evidence.began is not None else evidence.asked
    sign = evidence.last_sign
    since = evidence.ended_began or (sign[0] if sign else until) - CONSOLE_SECONDS
    return tuple(line for line in lines if line.time is not None and since <= line.time < until)


def _merge_samples(
    own: _Answers, other: _Answers, where: str, collector: _Collector
) -> tuple[tuple[Sample, ...], float | None]:
    """Return the samples of the node's own ring and of the received one, and the skew of the node's clock as the
    receiver saw it.
    """
    found: dict[tuple[str, float], Sample] = {}
    skew = None
    if not own.gone:
        text = collector.text("samples of the node", own, RING, "there is no recorder")
        if text is not None:
            ring = parse.samples(text)
            collector.read("samples of the node", f"{len(ring)} samples{own.note}", own.skew)
            found |= {(one.boot, one.time): one for one in ring}
    text = collector.text(f"samples{where}", other, PEER_RING, "no sample was received")
    if text is not None:
        ring = parse.samples(text)
        received = _parse_seconds(other.texts.get(PEER_TIME, ""), 0.0)
        if ring and other.skew is not None and abs(difference := ring[-1].time - received + other.skew) < MAX_SKEW:
            skew = difference
        if ring:
            note = "; skew of the node's clock by the last one" if other.skew is not None else other.note
            collector.read(f"samples{where}", f"{len(ring)} samples{note}", skew)
        else:
            collector.absent(f"samples{where}", "the ring is empty")
        found |= {(one.boot, one.time): one for one in ring}
    return tuple(sorted(found.values(), key=lambda one: one.time)), skew


def _of_hangs(evidence: Evidence, own: _Answers, collector: _Collector) -> Evidence:
    """Add the latest hang of each unit of the node. One of the boot that ended is a line of it."""
    if HANGS in own.failed:
        collector.unknown("hangs of units", own.failed[HANGS])
    lines = []
    for one in parse.hangs(own.texts.get(HANGS, "")):
        which = {evidence.ended: "in the boot that ended", evidence.boot: "in the present boot"}
        text = f"unit {one.unit} hung {which.get(one.boot, 'in another boot')}: {one.text}"
        collector.read(f"hang of unit {one.unit}", f"{text}; /var/lib/sparkrack/serve/{one.unit}.hang.json")
        if one.boot == evidence.ended:
            lines.append(LogLine(one.time, "hangs of units", "", text))
    return replace(evidence, lines=(*evidence.lines, *_shift_lines(lines, own.earlier_skew)))


def _of_switch(rack: Rack, evidence: Evidence, name: str, collector: _Collector) -> Evidence:
    """Add when the legs of the node went up and down."""
    legs = {leg.interface: leg.interface for leg, _ in rack.cabling.legs(name)}
    own = {leg.interface for leg, port in rack.cabling.legs(name) if port.node == evidence.node}
    look = SwitchChecks(rack, rack.switches[name])
    counted: tuple[Row, ...] | None = None
    recounted: tuple[Row, ...] | None = None
    try:
        begin, monotonic = time.time(), time.monotonic()
        clock = look.ask(SWITCH_CLOCK)
        asked = (begin + time.time()) / 2
        now, skew = parse.switch_now(clock), parse.switch_skew(clock, asked)
        if not evidence.alive:
            counted = _or_none(lambda: look.ask(COUNTERS))
        # Clock and uptime have whole seconds: a change soon after the start may have a time before it.
        since = asked - parse.switch_booted(look.ask(RESOURCE.sentence())) - SAME_SECONDS
        interfaces = look.ask(INTERFACES)
        log = _or_none(lambda: look.ask(LOG))
        links = look.links
        if counted is not None:
            time.sleep(max(0.0, monotonic + COUNTED_SECONDS - time.monotonic()))
            recounted = _or_none(lambda: look.ask(COUNTERS))
    except (UnknownError, EvidenceError) as fault:
        collector.unknown(f"switch {name}", fault.reason if isinstance(fault, UnknownError) else str(fault))
        return evidence
    finally:
        look.close()
    changes = parse.link_changes(interfaces, log or (), legs, now, asked)
    changes = tuple(change for change in changes if change.time > since)
    mine = tuple(change for change in changes if change.leg in own)
    note = "" if log is not None else "; its log cannot be read, so only the last change of each leg is known"
    collector.read(f"switch {name}", f"{len(mine)} changes of {', '.join(sorted(own))}{note}", skew)
    downs = {
        port.node: max(times)
        for leg, port in rack.cabling.legs(name)
        if port.node != evidence.node
        and (times := [one.time for one in changes if one.leg == leg.interface and not one.up])
    }
    present = tuple(
        LegNow(leg, {"link-ok": True, "no-link": False}.get(links.get(leg, {}).get("status", "")))
        for leg in sorted(own)
    )
    up = [leg.leg for leg in present if leg.up]
    frames = {leg: parse.leg_frames(counted or (), recounted or (), leg) for leg in up}
    return replace(
        evidence,
        life=(*evidence.life, *(f"the switch receives frames from {leg}" for leg, count in frames.items() if count)),
        silent=(*evidence.silent, *(f"the switch receives no frame from {leg}" for leg in frames if frames[leg] == 0)),
        changes=(*evidence.changes, *mine),
        legs=(*evidence.legs, *present),
        other_downs={**evidence.other_downs, **downs},
    )


def _of_fabric(rack: Rack, evidence: Evidence, first: Node | None, collector: _Collector) -> Evidence:
    """Add whether a node that does not answer on its management link answers other nodes on the fabric."""
    peers = dict.fromkeys(here.half.node for here, there in reachable(rack) if there.half.node == evidence.node)
    order = sorted(peers, key=lambda peer: first is None or peer != first.name)[:ECHOING_PEERS]
    for peer in order:
        pairs = [(here, there) for here, there in reachable(rack, peer) if there.half.node == evidence.node]
        with open_shells(rack, [peer], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
            answers = _ask_questions(
                shells[peer], {ECHOES: echoes((here.device, there.interface.ip) for here, there in pairs)}
            )
        source = f"fabric from {peer}"
        text = collector.text(source, answers, ECHOES, "it has no fabric")
        # The pings run side by side, and end in any order.
        ends = dict(line.split(" ", 1) for line in sorted((text or "").splitlines()) if " " in line)
        found = [address for address, status in ends.items() if status == "0"]
        if found:
            said = f"{', '.join(found)} {'answers' if len(found) == 1 else 'answer'}"
            collector.read(source, said)
            return replace(evidence, life=(*evidence.life, f"{said} {peer} on the fabric"))
        if ends and set(ends.values()) == {"1"}:
            collector.read(source, f"no answer of {', '.join(ends)}")
            evidence = replace(evidence, silent=(*evidence.silent, f"{peer} gets no answer of {', '.join(ends)}"))
        elif text is not None:
            collector.unknown(source, "ping could not be sent to each address")
    return evidence


def _or_none(ask: Callable[[], tuple[Row, ...]]) -> tuple[Row, ...] | None:
    try:
        return ask()
    except UnknownError:
        return None  # a reader that may not see the log: the interfaces have the last change


def _by_operator(time: float | None, skew: float | None) -> float | None:
    """Return a time by the operator's clock; None where the time or the skew of its clock is unknown."""
    return None if time is None or skew is None else time - skew


def _shift_lines(lines: Iterable[LogLine], skew: float | None) -> tuple[LogLine, ...]:
    """Return the lines by the operator's clock."""
    return tuple(replace(line, time=_by_operator(line.time, skew)) for line in lines)

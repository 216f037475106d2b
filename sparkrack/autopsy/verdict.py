"""Why a boot ended, from its evidence: signs of each class, and the class that they agree on. Pure.

A proof is a record that names the cause: the mark of a shutdown, the text of a panic, a reset that the watchdog's
hardware reports. A hint is a pattern of several sources. Proofs count before hints. Signs of classes that exclude each
other make the verdict unknown: it is never a guess.

One rule decides what a proof is worth, in `weighed` and `judge`: one that a program or another host can have written,
that has no time, or that another source contradicts, counts as a hint; one after which programs ran on counts only
against other signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from sparkrack.autopsy.evidence import Evidence, LogLine, Sample


class Cause(StrEnum):
    """Why a boot ended. The values stand in JSON."""

    PLANNED = "planned"
    """A shutdown in order."""
    PANIC = "panic"
    """The kernel panicked."""
    WATCHDOG = "watchdog"
    """The node stood still, and the hardware's watchdog reset it."""
    MEMORY_WEDGE = "memory_wedge"
    """Memory ran out, and nothing made progress any more."""
    POWER = "power"
    """The power was lost, or the hardware was reset, without a record."""
    FREEZE = "freeze"
    """The node stands still with its power on, and nothing reset it."""
    UNKNOWN = "unknown"


Confidence = Literal["high", "medium"]

SAME_SECONDS = 3.0
"""Seconds between two times that count as the same: the switch's clock has whole seconds."""
FRESH_SECONDS = 15.0
"""Seconds for which a sample shows that a node is alive."""
STANDSTILL_SECONDS = 60.0
"""Seconds without a sample while the link is up that are a standstill."""
POST_SECONDS = 300.0
"""Seconds that the firmware of a GB10 may take from a reset to the kernel."""
MEMORY_MINUTES = 20
"""Minutes before the end in which a lack of memory counts: userspace died 13 min after the first line (reported)."""
PRESSURE_FULL = 10.0
"""Percent of the time in which all tasks waited for memory; nodes that froze had this for 5 minutes (reported)."""
PRESSURE_SECONDS = 300.0

LIVES_ON_SECONDS = 10.0
"""A program that ran so much later than a proof shows that the boot went on after it."""
CLOCK_SECONDS = 5.0
"""Seconds by which a clock may step back over a reboot."""
SHUTDOWN_SECONDS = 600.0
"""Seconds after which systemd has the hardware reset a node whose shutdown hangs: its default."""
STAYS_OFF = ("poweroff", "power-off", "halt")
"""Ends of a boot after which the next one may begin at any time."""

_PREFIX = r"^(?:<\d+>)?(?:\[[ \d.]+\] ?(?:\[[ \w]+\] ?)?)?(?:-+\[ end )?"
"""Priority, time and caller, as a record of pstore has them. A text that quotes the words of a panic is not one."""
_PANIC = re.compile(_PREFIX + r"Kernel panic - not syncing(?:: (?P<why>.*?))?(?: \]-*)?$", re.MULTILINE)
"""Also in the last line of the record of a panic, which may be all that is left of it."""
_FAULTS = {
    "an oops": re.compile(r"\bOops\b|Unable to handle kernel|BUG: kernel NULL pointer|kernel BUG at "),
    "an Xid of the GPU": re.compile(r"NVRM: (?:GPU at .*: )?Xid \(|GPU has fallen off the bus"),
    "a soft lockup": re.compile(r"BUG: soft lockup|watchdog: BUG: "),
    "a hard lockup": re.compile(r"hard LOCKUP", re.IGNORECASE),
    "an RCU stall": re.compile(r"rcu: INFO: .*stall|rcu.* detected .*stall", re.IGNORECASE),
    "an error of the hardware": re.compile(r"\[Hardware Error\]|SError Interrupt|PCIe Bus Error: severity=Uncorrect"),
}
"""Faults of the kernel or of the hardware that do not end a boot by themselves, and what shows each."""
_HARDWARE_WATCHDOG = re.compile(r"SBSA Generic Watchdog timeout|watchdog pretimeout", re.IGNORECASE)
_NO_MEMORY = re.compile(r"NV_ERR_NO_MEMORY")
_FROZEN = re.compile(r"Freezing execution")
_SHUT_DOWN = re.compile(
    r"Reached target .*(?<!soft-)(reboot|poweroff|power-off|halt|kexec)\.target|^Shutting down\.$", re.IGNORECASE
)
_LAST_LINES = 60
"""Lines of the end of a journal in which the end of a shutdown is looked for."""


@dataclass(frozen=True)
class Sign:
    """One sign of a class. `strong`: it is certain enough for high confidence, as each proof is. `time`: when a log has
    it; `dated`: it is from such a log, so a time that is missing is unknown. `outlived`: programs ran on after it.
    """

    cause: Cause
    proof: bool
    source: str
    text: str
    strong: bool = False
    time: float | None = None
    dated: bool = False
    outlived: bool = False


@dataclass(frozen=True)
class Verdict:
    """Why a boot ended. `reason`: in a sentence. `signs`: those of the class; `against`: those of other classes.
    `may_be_alive`: the node does not answer, and nothing shows that it ended.
    """

    cause: Cause
    confidence: Confidence | None
    reason: str
    signs: tuple[Sign, ...] = ()
    against: tuple[Sign, ...] = ()
    may_be_alive: bool = False


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict."""
    every = [weighed(sign, evidence) for rule in RULES for sign in rule(evidence)]
    outlived = [sign for sign in every if sign.outlived]
    signs = [sign for sign in every if not sign.outlived]
    proofs = _uncontradicted_proofs(signs)
    if not proofs and (life := _signs_of_life(evidence, signs)):
        why = f"the node does not answer, and {life}: it may be alive; look at its management link and its sshd"
        return Verdict(Cause.UNKNOWN, None, why, (), tuple(every), may_be_alive=True)
    causes = _possible_causes(signs, proofs)
    chosen = _common_cause(frozenset(causes))
    if chosen is None:
        named = " and ".join(sorted(cause for cause in causes if cause is not Cause.UNKNOWN))
        unseen = [sign.text for sign in signs if sign.cause is Cause.UNKNOWN]
        reason = "; ".join((f"the evidence contradicts itself: {named}", *unseen))
        return Verdict(Cause.UNKNOWN, None, reason, (), tuple(every))
    if chosen is Cause.UNKNOWN:
        seen = [f"{sign.cause} ({sign.source}): {sign.text}" for sign in outlived]
        return Verdict(Cause.UNKNOWN, None, "; ".join((_nothing_found_text(evidence), *seen)), (), tuple(every))
    own = tuple(sign for sign in signs if sign.cause is chosen)
    against = (*(sign for sign in signs if sign.cause is not chosen), *outlived)
    undisputed = len(causes) == 1 and not outlived and not evidence.life
    certain = undisputed and any(sign in proofs or sign.strong for sign in own)
    return Verdict(chosen, "high" if certain else "medium", own[0].text, own, against)


def _uncontradicted_proofs(signs: Sequence[Sign]) -> list[Sign]:
    """Return the proofs among signs; none where another sign contradicts one of them."""
    proofs = [sign for sign in signs if sign.proof]
    weighty = {sign.cause for sign in signs if _is_weighty(sign)}
    return [] if any(weighty.intersection(_CONTRADICTS.get(proof.cause, ())) for proof in proofs) else proofs


def _possible_causes(signs: Sequence[Sign], proofs: Sequence[Sign]) -> list[Cause]:
    """Return the classes that proofs name, or else signs, each once and in their order."""
    recorded = any(sign.cause in _RECORDED for sign in signs)
    causes = dict.fromkeys(sign.cause for sign in proofs or signs if _is_weighty(sign) or not recorded)
    if proofs and Cause.WATCHDOG in causes and any(sign.cause is Cause.MEMORY_WEDGE for sign in signs):
        causes[Cause.MEMORY_WEDGE] = None
    return list(causes)


def _signs_of_life(evidence: Evidence, signs: Sequence[Sign]) -> str:
    """Return what shows that a node which does not answer may be alive; empty: nothing.

    A node whose memory is gone may still answer pings, so that alone does not make it alive.
    """
    if evidence.alive:
        return ""
    age = _age_of_samples(evidence)
    if age is not None and age < FRESH_SECONDS:
        return f"its last sample is {age:.0f} s old"
    wedged = {sign.cause for sign in signs} == {Cause.MEMORY_WEDGE}
    return "" if wedged else "; ".join(evidence.life)


def weighed(sign: Sign, evidence: Evidence) -> Sign:
    """Return a sign with what it is worth: a proof stays one when no program and no other host can have written it,
    and when it is known that nothing ran on after it.
    """
    last = evidence.last_activity
    if sign.time is not None and last is not None and last[0] > sign.time + LIVES_ON_SECONDS:
        text = f"{sign.text}, and programs ran on for {last[0] - sign.time:.0f} s ({last[1]})"
        return replace(sign, proof=False, strong=False, text=text, outlived=True)
    if sign.proof and sign.source in evidence.forgeable:
        text = f"{sign.text} (another host, or a program, can have sent it)"
        return replace(sign, proof=False, text=text)
    if sign.proof and sign.dated and sign.time is None:
        return replace(sign, proof=False, text=f"{sign.text} (at an unknown time)")
    return sign


_TOGETHER = {
    frozenset({Cause.PANIC, Cause.WATCHDOG}): Cause.PANIC,
    frozenset({Cause.MEMORY_WEDGE, Cause.WATCHDOG}): Cause.MEMORY_WEDGE,
}
"""Classes that occur together: the watchdog also ends a panic, and a node without memory."""
_CONTRADICTS = {
    Cause.PLANNED: (Cause.PANIC, Cause.WATCHDOG, Cause.UNKNOWN),
    Cause.PANIC: (Cause.PLANNED, Cause.POWER),
    Cause.WATCHDOG: (Cause.PLANNED, Cause.POWER),
}
"""Signs that contradict a proof of a class. Others go with it: after each of these ends the link goes down."""


_RECORDED = (Cause.PLANNED, Cause.PANIC, Cause.WATCHDOG)
"""Ends that leave a record, or a sign of one."""


def _is_weighty(sign: Sign) -> bool:
    """Return whether a sign can contradict a record: a link that goes down at the end goes with each end."""
    return sign.cause is not Cause.POWER or sign.strong


def _common_cause(causes: frozenset[Cause]) -> Cause | None:
    """Return the one class behind these; None when they exclude each other."""
    if not causes:
        return Cause.UNKNOWN
    return next(iter(causes)) if len(causes) == 1 else _TOGETHER.get(causes)


def _nothing_found_text(evidence: Evidence) -> str:
    if any(_stop_lines(evidence)):
        return "systemd stopped, and what ended the boot after that is unknown"
    last = _last_sample(evidence)
    up = any(leg.up for leg in evidence.legs)
    if not evidence.alive and up and not evidence.silent and last and evidence.asked - last >= STANDSTILL_SECONDS:
        why = (
            f"the last sample is {evidence.asked - last:.0f} s old, a leg has a link, and no other wire could be asked"
        )
        return f"{why}: the node may be alive; look at its management link, its sshd and its console"
    if evidence.last_sign is None and evidence.clocks_unknown:
        names = ", ".join(evidence.clocks_unknown)
        return f"no sign of life of the boot that ended has a known time: the clock of {names} is unknown"
    if evidence.last_sign is None:
        return "no source has a sign of life of the boot that ended"
    if faults := tuple(_fault_lines(evidence)):
        return f"nothing shows what ended the boot; before that there was {'; '.join(faults)}"
    if evidence.power_ons == 0 and _link_down_at_the_end(evidence) is not None:
        return "a reset without a record: the disk kept its power"
    if evidence.power_ons:
        return "the node lost its power at some time, and nothing shows whether it stood still before"
    return "no record of a shutdown, a panic or the watchdog, and no pattern of a power loss or a standstill"


# --- Signs


def _planned_signs(evidence: Evidence) -> Iterator[Sign]:
    if mark := evidence.clean_stop:
        how = f" for {mark.target}" if mark.target else ""
        source, text = "mark of the shutdown", f"systemd had stopped all services{how}"
        proof = not _hung_shutdown(evidence)
        yield Sign(Cause.PLANNED, proof, source, text, time=mark.time, dated=True)
        yield from _after_the_shutdown(evidence, mark.time, mark.target)
    for source in ("journal", "remote journal"):
        lines = [line for line in evidence.lines if line.source == source][-_LAST_LINES:]
        for line in lines:
            if line.program == "systemd" and (match := _SHUT_DOWN.search(line.text)):
                text = f"the journal ends with a shutdown: {line.text}"
                yield Sign(Cause.PLANNED, True, source, text, time=line.time, dated=True)
                if not evidence.clean_stop:
                    yield from _after_the_shutdown(evidence, line.time, match[1])
                break


def _after_the_shutdown(evidence: Evidence, ended: float | None, target: str | None) -> Iterator[Sign]:
    """Yield a sign when another boot may have begun after the shutdown, and have left no trace."""
    if ended is None or evidence.began is None or not evidence.alive:
        return
    gap, hung = evidence.began - ended, _hung_shutdown(evidence)
    if gap < -CLOCK_SECONDS:
        text = f"the present boot began {-gap:.0f} s before that shutdown, by clocks of which one is wrong"
        yield Sign(Cause.UNKNOWN, False, "present boot", text)
    elif gap > (evidence.pause_limit or POST_SECONDS) and str(target).lower() not in STAYS_OFF and not hung:
        text = f"the present boot began {gap:.0f} s after that shutdown: a boot between them may have left no trace"
        yield Sign(Cause.UNKNOWN, False, "present boot", text)


def _hung_shutdown(evidence: Evidence) -> bool:
    """Return whether the watchdog's reset came when it was due after the mark of a shutdown."""
    mark, limit = evidence.clean_stop, evidence.shutdown_limit or SHUTDOWN_SECONDS
    if not evidence.firmware or mark is None or mark.time is None or evidence.began is None:
        return False
    return limit <= evidence.began - mark.time <= 2 * limit + POST_SECONDS


def _last_kernel_lines(evidence: Evidence) -> Iterator[LogLine]:
    """Yield everything that the kernel may have said at its end. Lines of pstore have no time, and are of this boot."""
    for record in evidence.records:
        for text in record.splitlines():
            yield LogLine(None, "pstore", "kernel", text)
    yield from (line for line in evidence.lines if line.program == "kernel")


def _panic_signs(evidence: Evidence) -> Iterator[Sign]:
    chosen: dict[str, tuple[LogLine, str]] = {}
    for line in _last_kernel_lines(evidence):
        # Of a source into which others write the first one: what was forged once can be forged again.
        if (found := _PANIC.search(line.text)) and not (line.source in evidence.forgeable and line.source in chosen):
            chosen[line.source] = line, (found["why"] or "").strip()
    for source, (line, why) in chosen.items():
        cause, text = Cause.PANIC, f"the kernel panicked: {why or 'without a reason'}"
        if _HARDWARE_WATCHDOG.search(line.text):
            cause, text = Cause.WATCHDOG, f"the watchdog's first stage caused a panic: {why}"
        yield Sign(cause, True, source, text, time=line.time, dated=source != "pstore")


# claim: blackbox.watchdog
def _list_watchdog_signs(evidence: Evidence) -> Iterator[Sign]:
    for text in evidence.firmware:
        text = f"the hardware reports a reset by its watchdog: {text}"
        if _hung_shutdown(evidence):
            yield Sign(Cause.PLANNED, False, "present boot", f"the shutdown hung, and {text}")
        else:
            yield Sign(Cause.WATCHDOG, True, "present boot", text)
    limit = evidence.feeding
    if not limit or not evidence.alive or evidence.began is None:
        return
    if frozen := next(_stop_lines(evidence), None):
        gap = -1.0 if frozen.time is None else evidence.began - frozen.time
        if 0 <= gap <= 2 * limit + POST_SECONDS:
            text = f"systemd stopped, and the node booted again {gap:.0f} s later; its watchdog acts after {limit:g} s"
            yield Sign(Cause.WATCHDOG, False, frozen.source, text)
        return
    down, last = _link_down_at_the_end(evidence), _last_sample(evidence)
    if down is not None and last is not None and evidence.power_ons == 0:
        gap = down - last
        if limit / 2 <= gap <= 2.2 * limit + 15:
            text = f"the link went down {gap:.0f} s after the last sample, and the disk kept its power"
            yield Sign(Cause.WATCHDOG, False, "switch", text)


def _memory_signs(evidence: Evidence) -> Iterator[Sign]:
    if (sign := evidence.last_sign) is None:
        return
    since = sign[0] - MEMORY_MINUTES * 60
    lines = [
        line
        for line in evidence.lines
        if line.program == "kernel" and _NO_MEMORY.search(line.text) and (line.time or 0) >= since
    ]
    counted = [sample.no_memory for sample in evidence.samples if sample.no_memory is not None]
    refused = bool(lines) or (len(counted) > 1 and counted[-1] > counted[0])
    pressed = _mean_pressure(evidence.samples)
    scarce = _least_available_memory(evidence.samples)
    if pressed:
        text = f"all tasks waited for memory {pressed:.0f} % of the time in the last 5 minutes"
        # A disk that counts a power-on is that of a node that lost its power, then or when it was switched on again.
        strong = refused and not evidence.power_ons
        yield Sign(Cause.MEMORY_WEDGE, False, "samples", text, strong=strong)
    elif refused and scarce is not None:
        text = f"the GPU was refused memory, and {scarce:.1%} of the memory was available in the last minute"
        yield Sign(Cause.MEMORY_WEDGE, False, lines[0].source if lines else "samples", text)


def _mean_pressure(samples: Sequence[Sample]) -> float | None:
    """Return the mean pressure of the last 5 minutes when it was high in nearly all of them."""
    if not samples:
        return None
    values = [one.full for one in samples if one.full is not None and one.time > samples[-1].time - PRESSURE_SECONDS]
    first = min((one.time for one in samples if one.full is not None), default=samples[-1].time)
    if samples[-1].time - first < PRESSURE_SECONDS - 30 or not values:
        return None
    high = sum(value >= PRESSURE_FULL for value in values)
    return sum(values) / len(values) if high >= 0.9 * len(values) else None


def _least_available_memory(samples: Sequence[Sample]) -> float | None:
    """Return the least share of memory that was available in the last minute, when it was scarce."""
    least = min(
        (one.available for one in samples if one.available is not None and one.time > samples[-1].time - 60),
        default=None,
    )
    return least if least is not None and least < 0.03 else None


# claim: blackbox.link-down-with-power
def _power_signs(evidence: Evidence) -> Iterator[Sign]:
    sign, down = evidence.last_sign, _link_down_at_the_end(evidence)
    if sign is None or down is None or abs(down - sign[0]) > SAME_SECONDS:
        return
    if any(_stop_lines(evidence)) and not evidence.power_ons:
        return  # that is a record: the recorder wrote on until the watchdog, or a reset by hand, ended the node
    text = f"the link went down {abs(down - sign[0]):.0f} s {'after' if down >= sign[0] else 'before'} the last sign of"
    text += f" life ({sign[1]}), and nothing was recorded"
    if evidence.power_ons is None:
        yield Sign(Cause.POWER, False, "switch", f"{text}: power, or a reset without a record")
    elif evidence.power_ons:
        counted = f"{evidence.power_ons} more power-ons of the disk"
        yield Sign(Cause.POWER, False, "switch", f"{text}; {counted}", strong=True)


def _freeze_signs(evidence: Evidence) -> Iterator[Sign]:
    last = _last_sample(evidence)
    # One wire that is silent is one observation: samples, journal and ssh come by the management link, all of them.
    if not evidence.alive and evidence.silent:
        asked = f"; also {', '.join(evidence.silent)}"
        up = [leg.leg for leg in evidence.legs if leg.up]
        if last is not None and up and evidence.asked - last >= STANDSTILL_SECONDS:
            text = f"{', '.join(up)} has a link, and the last sample is {evidence.asked - last:.0f} s old{asked}"
            yield Sign(Cause.FREEZE, False, "switch", text)
        frozen = next(_stop_lines(evidence), None)
        overdue = 2 * (evidence.feeding or 0) + POST_SECONDS
        if frozen and frozen.time is not None and evidence.asked - frozen.time > overdue:
            text = f"systemd stopped {evidence.asked - frozen.time:.0f} s ago, and nothing reset the node{asked}"
            yield Sign(Cause.FREEZE, False, frozen.source, text)
    down = _link_down_at_the_end(evidence)
    if last is None or down is None or evidence.last_sign is None or evidence.last_sign[0] > last + SAME_SECONDS:
        return
    stood = down - last
    if stood >= STANDSTILL_SECONDS and stood > 2.2 * (evidence.feeding or 0) + 15:
        text = f"the link stayed up for {stood:.0f} s after the last sample"
        yield Sign(Cause.FREEZE, False, "switch", text)


RULES: tuple[Callable[[Evidence], Iterator[Sign]], ...] = (
    _planned_signs,
    _panic_signs,
    _list_watchdog_signs,
    _memory_signs,
    _power_signs,
    _freeze_signs,
)


def _stop_lines(evidence: Evidence) -> Iterator[LogLine]:
    """Yield the lines in which systemd says that it stops; also those in the log of the kernel: they prove nothing."""
    programs = ("systemd", "/dev/kmsg, as systemd")
    return (line for line in evidence.lines if line.program in programs and _FROZEN.search(line.text))


def _last_sample(evidence: Evidence) -> float | None:
    return evidence.samples[-1].time if evidence.samples else None


def _age_of_samples(evidence: Evidence) -> float | None:
    last = _last_sample(evidence)
    return None if last is None else evidence.asked - last


def _link_down_at_the_end(evidence: Evidence) -> float | None:
    """Return when the links of the node went down at its end; None when that is unknown.

    A node that boots takes its links down again, so without the switch's log the time of the last change counts only
    while the node is away, or when it is that of the last sign of life.
    """
    sign = evidence.last_sign
    if sign is None:
        return None
    found = []
    for leg in dict.fromkeys(change.leg for change in evidence.changes):
        downs = sorted(
            (change.time, change.logged)
            for change in evidence.changes
            if change.leg == leg
            and not change.up
            and change.time >= sign[0] - SAME_SECONDS
            and (evidence.began is None or not evidence.alive or change.time < evidence.began)
        )
        if not downs:
            return None  # one link stayed up, or nothing is known of it
        at, logged = downs[0]
        if not logged and evidence.alive and abs(at - sign[0]) > SAME_SECONDS:
            return None
        found.append(at)
    return max(found, default=None)


def _fault_lines(evidence: Evidence) -> Iterator[str]:
    """Yield each kind of fault that the kernel logged, with its last line, and what the firmware reports."""
    sign = evidence.last_sign
    for name, pattern in _FAULTS.items():
        lines = [line for line in _last_kernel_lines(evidence) if pattern.search(line.text)]
        if lines:
            last, count = lines[-1], f"{len(lines)} lines, the last one " if len(lines) > 1 else ""
            at = (
                ""
                if last.time is None or sign is None
                else f" {sign[0] - last.time:.0f} s before the last sign of life"
            )
            yield f"{name} ({count}in {last.source}{at}): {last.text.strip()}"
    if evidence.hardware:
        yield f"an error of the hardware before this boot, by its firmware: {evidence.hardware[-1]}"


def remarks(evidence: Evidence) -> tuple[str, ...]:
    """Return what is worth knowing and decides nothing."""
    found = [
        f"the clock of {name} is unknown: the times that it wrote are not used, so the verdict rests on fewer signs"
        for name in evidence.clocks_unknown
    ]
    found += _fault_lines(evidence)
    if evidence.life and not evidence.alive:
        found.append(f"it does not answer on its management link, and may be alive now: {'; '.join(evidence.life)}")
    if evidence.earlier_records:
        names = ", ".join(evidence.earlier_records)
        found.append(
            f"a boot before the one that ended left a record of a panic, and that one did not collect it: {names}"
        )
    sign = evidence.last_sign
    if sign and (same := sorted(n for n, at in evidence.other_downs.items() if abs(at - sign[0]) <= SAME_SECONDS)):
        found.append(f"link down at the same time: {', '.join(same)}; look at the mains and the switch first")
    recent = [one for one in evidence.samples if one.time > evidence.samples[-1].time - 120]
    latched = [one for one in recent if (one.utilization or 0) > 0.8 and one.clock is not None and one.clock < 1000]
    if recent and len(latched) > len(recent) / 2:
        found.append(
            "the GPU ran below 1000 MHz under load: shut the node down, take its power supply off the mains for 60 s"
        )
    margin = min((one.margin for one in recent if one.margin is not None), default=None)
    if margin is not None and margin < 2:
        found.append(f"the GPU came within {margin:g} °C of its limit in the last 2 minutes: lower blackbox.clock_cap")
    return tuple(found)

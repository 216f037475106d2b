"""Why a boot ended, from its evidence: signs of each class, and the class that they agree on. Pure.

A proof is a record that names the cause: the mark of a shutdown, the text of a panic, a reset that the watchdog's
hardware reports. A hint is a pattern of several sources. Proofs count before hints. Signs of classes that exclude each
other make the verdict unknown: it is never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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

_PANIC = re.compile(r"Kernel panic - not syncing(?:: (?P<why>.*?))?(?: \]---)?$", re.MULTILINE)
"""Also in the last line of the record of a panic, which may be all that is left of it."""
_HARDWARE_WATCHDOG = re.compile(r"SBSA Generic Watchdog timeout|watchdog pretimeout", re.IGNORECASE)
_NO_MEMORY = re.compile(r"NV_ERR_NO_MEMORY")
_FROZEN = re.compile(r"Freezing execution")
_SHUT_DOWN = re.compile(r"Reached target .*(?:reboot|poweroff|power-off|halt|kexec)\.target|^Shutting down\.$", re.I)
_LAST_LINES = 60
"""Lines of the end of a journal in which the end of a shutdown is looked for."""


@dataclass(frozen=True)
class Sign:
    """One sign of a class. `strong`: it is certain enough for high confidence, as each proof is."""

    cause: Cause
    proof: bool
    source: str
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Verdict:
    """Why a boot ended. `reason`: in a sentence. `signs`: those of the class; `against`: those of other classes."""

    cause: Cause
    confidence: Confidence | None
    reason: str
    signs: tuple[Sign, ...] = ()
    against: tuple[Sign, ...] = ()


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict."""
    signs = [sign for rule in RULES for sign in rule(evidence)]
    proofs = [sign for sign in signs if sign.proof]
    if not evidence.alive and not proofs and (age := _age_of_samples(evidence)) is not None and age < FRESH_SECONDS:
        why = f"the node does not answer, and its last sample is {age:.0f} s old: it may be alive; look at its"
        return Verdict(Cause.UNKNOWN, None, f"{why} management link and its sshd", (), tuple(signs))
    causes = dict.fromkeys(sign.cause for sign in proofs or signs)
    if proofs and Cause.WATCHDOG in causes and any(sign.cause is Cause.MEMORY_WEDGE for sign in signs):
        causes[Cause.MEMORY_WEDGE] = None
    chosen = _common(frozenset(causes))
    if chosen is None:
        named = " and ".join(sorted(causes))
        return Verdict(Cause.UNKNOWN, None, f"the evidence contradicts itself: {named}", (), tuple(signs))
    if chosen is Cause.UNKNOWN:
        return Verdict(Cause.UNKNOWN, None, _nothing(evidence))
    own = tuple(sign for sign in signs if sign.cause is chosen)
    against = tuple(sign for sign in signs if sign.cause is not chosen)
    certain = len(causes) == 1 and any(sign.proof or sign.strong for sign in own)
    return Verdict(chosen, "high" if certain else "medium", own[0].text, own, against)


_TOGETHER = {
    frozenset({Cause.PANIC, Cause.WATCHDOG}): Cause.PANIC,
    frozenset({Cause.MEMORY_WEDGE, Cause.WATCHDOG}): Cause.MEMORY_WEDGE,
    frozenset({Cause.PLANNED, Cause.WATCHDOG}): Cause.PLANNED,
}
"""Classes that occur together: the watchdog also ends a panic, a node without memory, and a shutdown that hangs."""


def _common(causes: frozenset[Cause]) -> Cause | None:
    """Return the one class behind these; None when they exclude each other."""
    if not causes:
        return Cause.UNKNOWN
    return next(iter(causes)) if len(causes) == 1 else _TOGETHER.get(causes)


def _nothing(evidence: Evidence) -> str:
    if any(_frozen(evidence)):
        return "systemd stopped, and what ended the boot after that is unknown"
    if evidence.last_sign is None and evidence.clocks_unknown:
        names = ", ".join(evidence.clocks_unknown)
        return f"no sign of life of the boot that ended has a known time: the clock of {names} is unknown"
    if evidence.last_sign is None:
        return "no source has a sign of life of the boot that ended"
    if evidence.disk and not evidence.disk.power_cycles and _link_down_at_the_end(evidence) is not None:
        return "a reset without a record: the disk kept its power"
    if evidence.disk and evidence.disk.power_cycles:
        return "the node lost its power at some time, and nothing shows whether it stood still before"
    return "no record of a shutdown, a panic or the watchdog, and no pattern of a power loss or a standstill"


# --- Signs


def _planned(evidence: Evidence) -> Iterator[Sign]:
    if mark := evidence.clean_stop:
        how = f" for {mark.target}" if mark.target else ""
        yield Sign(Cause.PLANNED, True, "mark of the shutdown", f"systemd had stopped all services{how}")
    for source in ("journal", "remote journal"):
        lines = [line for line in evidence.lines if line.source == source][-_LAST_LINES:]
        for line in lines:
            if line.program == "systemd" and _SHUT_DOWN.search(line.text):
                yield Sign(Cause.PLANNED, True, source, f"the journal ends with a shutdown: {line.text}")
                break


def _texts(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the source and the text of everything that the kernel may have said at its end."""
    for record in evidence.records:
        for text in record.splitlines():
            yield "pstore", text
    for line in evidence.lines:
        if line.program == "kernel":
            yield line.source, line.text


def _panic(evidence: Evidence) -> Iterator[Sign]:
    seen = set[str]()
    for source, text in _texts(evidence):
        if source in seen or not (found := _PANIC.search(text)):
            continue
        seen.add(source)
        why = (found["why"] or "").strip()
        if _HARDWARE_WATCHDOG.search(text):
            yield Sign(Cause.WATCHDOG, True, source, f"the watchdog's first stage caused a panic: {why}")
        else:
            yield Sign(Cause.PANIC, True, source, f"the kernel panicked: {why or 'without a reason'}")


# claim: blackbox.watchdog
def _watchdog(evidence: Evidence) -> Iterator[Sign]:
    for text in evidence.firmware:
        yield Sign(Cause.WATCHDOG, True, "present boot", f"the hardware reports a reset by its watchdog: {text}")
    limit = evidence.feeding
    if not limit or not evidence.alive or evidence.began is None:
        return
    if frozen := next(_frozen(evidence), None):
        gap = -1.0 if frozen.time is None else evidence.began - frozen.time
        if 0 <= gap <= 2 * limit + POST_SECONDS:
            text = f"systemd stopped, and the node booted again {gap:.0f} s later; its watchdog acts after {limit:g} s"
            yield Sign(Cause.WATCHDOG, False, frozen.source, text)
        return
    down, last = _link_down_at_the_end(evidence), _last_sample(evidence)
    if down is not None and last is not None and evidence.disk and not evidence.disk.power_cycles:
        gap = down - last
        if limit / 2 <= gap <= 2.2 * limit + 15:
            text = f"the link went down {gap:.0f} s after the last sample, and the disk kept its power"
            yield Sign(Cause.WATCHDOG, False, "switch", text)


def _memory(evidence: Evidence) -> Iterator[Sign]:
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
    pressed = _pressed(evidence.samples)
    scarce = _scarce(evidence.samples)
    if pressed:
        text = f"all tasks waited for memory {pressed:.0f} % of the time in the last 5 minutes"
        yield Sign(Cause.MEMORY_WEDGE, False, "samples", text, strong=refused)
    elif refused and scarce is not None:
        text = f"the GPU was refused memory, and {scarce:.1%} of the memory was available in the last minute"
        yield Sign(Cause.MEMORY_WEDGE, False, lines[0].source if lines else "samples", text)


def _pressed(samples: Sequence[Sample]) -> float | None:
    """Return the mean pressure of the last 5 minutes when it was high in nearly all of them."""
    if not samples:
        return None
    values = [one.full for one in samples if one.full is not None and one.time > samples[-1].time - PRESSURE_SECONDS]
    first = min((one.time for one in samples if one.full is not None), default=samples[-1].time)
    if samples[-1].time - first < PRESSURE_SECONDS - 30 or not values:
        return None
    high = sum(value >= PRESSURE_FULL for value in values)
    return sum(values) / len(values) if high >= 0.9 * len(values) else None


def _scarce(samples: Sequence[Sample]) -> float | None:
    """Return the least share of memory that was available in the last minute, when it was scarce."""
    least = min(
        (one.available for one in samples if one.available is not None and one.time > samples[-1].time - 60),
        default=None,
    )
    return least if least is not None and least < 0.03 else None


# claim: blackbox.link-down-with-power
def _power(evidence: Evidence) -> Iterator[Sign]:
    sign, down = evidence.last_sign, _link_down_at_the_end(evidence)
    if sign is None or down is None or abs(down - sign[0]) > SAME_SECONDS:
        return
    if any(_frozen(evidence)) and not (evidence.disk and evidence.disk.power_cycles):
        return  # that is a record: the recorder wrote on until the watchdog, or a reset by hand, ended the node
    text = f"the link went down {abs(down - sign[0]):.0f} s {'after' if down >= sign[0] else 'before'} the last sign of"
    text += f" life ({sign[1]}), and nothing was recorded"
    if evidence.disk is None:
        yield Sign(Cause.POWER, False, "switch", f"{text}: power, or a reset without a record")
    elif evidence.disk.power_cycles:
        counted = f"{evidence.disk.power_cycles} more power-ons of the disk"
        yield Sign(Cause.POWER, False, "switch", f"{text}; {counted}", strong=True)


def _freeze(evidence: Evidence) -> Iterator[Sign]:
    last = _last_sample(evidence)
    if not evidence.alive:
        up = [leg.leg for leg in evidence.legs if leg.up]
        if last is not None and up and evidence.asked - last >= STANDSTILL_SECONDS:
            text = f"{', '.join(up)} has a link, and the last sample is {evidence.asked - last:.0f} s old"
            yield Sign(Cause.FREEZE, False, "switch", text)
        frozen = next(_frozen(evidence), None)
        overdue = 2 * (evidence.feeding or 0) + POST_SECONDS
        if frozen and frozen.time is not None and evidence.asked - frozen.time > overdue:
            text = f"systemd stopped {evidence.asked - frozen.time:.0f} s ago, and nothing reset the node"
            yield Sign(Cause.FREEZE, False, frozen.source, text)
    down = _link_down_at_the_end(evidence)
    if last is None or down is None or evidence.last_sign is None or evidence.last_sign[0] > last + SAME_SECONDS:
        return
    stood = down - last
    if stood >= STANDSTILL_SECONDS and stood > 2.2 * (evidence.feeding or 0) + 15:
        text = f"the link stayed up for {stood:.0f} s after the last sample"
        yield Sign(Cause.FREEZE, False, "switch", text)


RULES: tuple[Callable[[Evidence], Iterator[Sign]], ...] = (_planned, _panic, _watchdog, _memory, _power, _freeze)


def _frozen(evidence: Evidence) -> Iterator[LogLine]:
    """Yield the lines in which systemd says that it stops."""
    return (line for line in evidence.lines if line.program == "systemd" and _FROZEN.search(line.text))


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


def remarks(evidence: Evidence) -> tuple[str, ...]:
    """Return what is worth knowing and decides nothing."""
    found = [
        f"the clock of {name} is unknown: the times that it wrote are not used, so the verdict rests on fewer signs"
        for name in evidence.clocks_unknown
    ]
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

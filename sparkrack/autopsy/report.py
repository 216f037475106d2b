"""The report about the end of a boot: verdict, timeline, and the units to start again. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from core.model import Rack
from core.util.scrub import scrub
from serving.options import served_units
from sparkrack.autopsy.evidence import Evidence
from sparkrack.autopsy.model import AutopsyReport, SignReport, SourceReport, TimelineEntry, UnitAfter
from sparkrack.autopsy.verdict import Cause, Sign, judge, remarks

MOST_ENTRIES = 300
"""Entries of a timeline; the newest are kept."""
_LINES = 80
"""Lines of each log in the timeline."""
_SAMPLE_SECONDS = 10.0
"""Seconds between two samples in the timeline; the last one is always there."""


def report_of(rack: Rack, evidence: Evidence) -> AutopsyReport:
    """Return the report; secrets in logs are removed."""
    verdict, sign = judge(evidence), evidence.last_sign
    return AutopsyReport(
        rack=rack.rack,
        node=evidence.node,
        made=_utc_moment(evidence.asked),
        verdict=verdict.cause,
        confidence=verdict.confidence,
        reason=scrub(verdict.reason),
        alive=evidence.alive,
        boot=evidence.ended,
        last_sign=_utc_moment(sign[0]) if sign else None,
        last_source=sign[1] if sign else None,
        signs=tuple(map(_sign_report, verdict.signs)),
        against=tuple(map(_sign_report, verdict.against)),
        remarks=remarks(evidence),
        units=() if verdict.cause is Cause.PLANNED or verdict.may_be_alive else units_after(rack, evidence.node),
        sources=tuple(
            SourceReport(name=one.name, state=one.state, detail=scrub(one.detail), skew=one.skew)
            for one in evidence.sources
        ),
        timeline=timeline(evidence),
    )


def units_after(rack: Rack, node: str) -> tuple[UnitAfter, ...]:
    """Return the units that span this node and others: an unplanned end of one rank leaves the others half broken."""
    units = served_units(rack).values()
    spans = {unit.name: unit.ranks(rack.nodes) for unit in units}
    return tuple(UnitAfter(unit=name, nodes=ranks) for name, ranks in spans.items() if node in ranks and len(ranks) > 1)


def timeline(evidence: Evidence) -> tuple[TimelineEntry, ...]:
    """Merge all sources into one timeline, by the operator's clock."""
    entries = sorted(_time_entries(evidence), key=lambda entry: entry[0])[-MOST_ENTRIES:]
    return tuple(TimelineEntry(at=_utc_moment(at), source=source, text=scrub(text)) for at, source, text in entries)


def _time_entries(evidence: Evidence) -> Iterator[tuple[float, str, str]]:
    for source in dict.fromkeys(line.source for line in evidence.lines):
        for line in [line for line in evidence.lines if line.source == source][-_LINES:]:
            if line.time is not None:
                yield line.time, source, f"{line.program}: {line.text}" if line.program else line.text
    shown = 0.0
    for sample in evidence.samples:
        if sample is evidence.samples[-1] or sample.time - shown >= _SAMPLE_SECONDS:
            shown = sample.time
            figures = {
                "GPU {:.0f} MHz": sample.clock,
                "{:.0f} W": sample.power,
                "margin {:g} °C": sample.margin,
                "{:.0%} of memory available": sample.available,
                "memory pressure {:g} %": sample.full,
            }
            known = [form.format(value) for form, value in figures.items() if value is not None]
            last = "last sample: " if sample is evidence.samples[-1] else ""
            yield sample.time, "samples", last + (", ".join(known) or "no figure is known")
    for change in evidence.changes:
        yield change.time, "switch", f"{change.leg} link {'up' if change.up else 'down'}"
    for name, at in evidence.other_downs.items():
        yield at, "switch", f"{name}: link down"
    if (mark := evidence.clean_stop) and mark.time is not None:
        yield mark.time, "mark of the shutdown", f"all services are stopped{f', {mark.target}' if mark.target else ''}"
    if evidence.began is not None and evidence.alive:
        yield evidence.began, "node", "the present boot began"


def _sign_report(sign: Sign) -> SignReport:
    return SignReport(cause=sign.cause, proof=sign.proof, source=sign.source, text=scrub(sign.text))


def _utc_moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

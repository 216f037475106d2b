"""Drift as JUnit XML in pytest's form: a suite for each machine, a case for each role."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from core.model.errors import printable_line
from sparkrack.drift.findings import DRIFT, Comparison, Drift, DriftFinding, FindingKind, RolesChecked
from sparkrack.drift.labels import sentence, total


def junit(drift: Drift) -> str:
    """The whole document. Drift is a failure, what is unknown an error, and what is not declared an output."""
    suites = Element("testsuites", name=f"sparkrack drift {drift.rack}")
    for machine in drift.hosts:
        suites.append(_suite(drift, machine))
    SubElement(SubElement(suites, "properties"), "property", name="total", value=total(drift))
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _suite(drift: Drift, machine: Comparison) -> Element:
    # A host without any checked role would be a suite without cases, which reads as passed.
    cases = [_case(drift, machine, looked) for looked in machine.roles or (RolesChecked(role="reach"),)]
    suite = Element(
        "testsuite",
        name=machine.name,
        tests=str(len(cases)),
        errors=_count(cases, "error"),
        failures=_count(cases, "failure"),
        skipped="0",
        timestamp=drift.made.isoformat(),
        hostname=machine.name,
    )
    suite.extend(cases)
    return suite


def _count(cases: list[Element], outcome: str) -> str:
    return str(sum(case.find(outcome) is not None for case in cases))


def _case(drift: Drift, machine: Comparison, looked: RolesChecked) -> Element:
    case = Element("testcase", classname=f"{drift.rack}.{machine.name}", name=looked.role)
    wrong = [finding for finding in looked.findings if finding.kind in DRIFT]
    unknown = [finding for finding in looked.findings if finding.kind is FindingKind.UNKNOWN]
    if unknown or not (wrong or machine.complete):
        lines = [*_lines(unknown), *_lines(wrong)] or [_unknown_reason(machine)]
        SubElement(case, "error", message=lines[0]).text = "\n".join(lines)
    elif wrong:
        lines = list(_lines(wrong))
        SubElement(case, "failure", message=lines[0]).text = "\n".join(lines)
    extras = [finding for finding in looked.findings if finding.kind is FindingKind.UNMANAGED]
    if extras:
        SubElement(case, "system-out").text = "\n".join(_lines(extras))
    return case


def _unknown_reason(machine: Comparison) -> str:
    if machine.reason:
        return f"unreachable: {printable_line(machine.reason)}"
    return "not known, since not all of this machine could be read"


def _lines(findings: list[DriftFinding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.kind}: {sentence(finding)}"
        yield from (f"    {printable_line(line)}" for line in finding.diff)

"""Drift as JUnit XML in pytest's form: a suite for each machine, a case for each role."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sparkrack.drift.words import sentence, total
from sparkrack.fleet.errors import one_line
from sparkrack.run.drift import DRIFT, Compared, Drift, Finding, Kind, Looked


def junit(drift: Drift) -> str:
    """The whole document. Drift is a failure, what could not be told an error, and what is not declared an output."""
    suites = Element("testsuites", name=f"sparkrack drift {drift.rack}")
    for machine in drift.machines:
        suites.append(_suite(drift, machine))
    SubElement(SubElement(suites, "properties"), "property", name="total", value=total(drift))
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _suite(drift: Drift, machine: Compared) -> Element:
    # A machine of which no role was looked at would be a suite without cases, which reads as passed.
    cases = [_case(drift, machine, looked) for looked in machine.roles or (Looked(role="reach"),)]
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


def _case(drift: Drift, machine: Compared, looked: Looked) -> Element:
    case = Element("testcase", classname=f"{drift.rack}.{machine.name}", name=looked.role)
    wrong = [finding for finding in looked.findings if finding.kind in DRIFT]
    unknown = [finding for finding in looked.findings if finding.kind is Kind.UNKNOWN]
    if unknown or not (wrong or machine.told):
        lines = [*_lines(unknown), *_lines(wrong)] or [_untold(machine)]
        SubElement(case, "error", message=lines[0]).text = "\n".join(lines)
    elif wrong:
        lines = list(_lines(wrong))
        SubElement(case, "failure", message=lines[0]).text = "\n".join(lines)
    extras = [finding for finding in looked.findings if finding.kind is Kind.UNMANAGED]
    if extras:
        SubElement(case, "system-out").text = "\n".join(_lines(extras))
    return case


def _untold(machine: Compared) -> str:
    if machine.why:
        return f"unreachable: {one_line(machine.why)}"
    return "not known, since not all of this machine could be read"


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.kind}: {sentence(finding)}"
        yield from (f"    {one_line(line)}" for line in finding.diff)

"""The bundle of `sparkrack accept`: what a rack answered, anonymized, in a small archive with the hash of each file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from core.model import Rack
from core.probes import protocol
from core.util.archive import write_archive
from core.util.records import Record, Text
from roles.time.options import TimeOptions
from sparkrack.accept.anonymize import Anonymizer, chosen_interface, names_in
from sparkrack.accept.model import AcceptReport, ClaimResult
from switch.accept_record import ProbeReading, anonymized
from switch.anonymize import Mask, owners_words

IDENTITY = "identity"
"""Stands for IDENTITY_COMMAND among the answers of a node; it is not a claim."""
IDENTITY_COMMAND = (
    "hostname; hostname -f 2>/dev/null; cat /etc/machine-id 2>/dev/null; cat /sys/class/net/*/address 2>/dev/null; "
    "cat /sys/class/dmi/id/*_serial /sys/class/dmi/id/product_uuid 2>/dev/null | sed 's/^/serial /'; "
    "ls /sys/class/net 2>/dev/null | sed 's/^/interface /'; true"
)
"""Prints what identifies a node. The answer is not in a bundle: it is replaced there."""
_REPORT, _RACK = "accept.json", "rack.json"
_MAC = re.compile(r"\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b")
_HYPHENS = re.compile(r"(?<![0-9A-Za-z-])[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}(?![0-9A-Za-z-])")
"""A MAC address that nothing may print with colons, as that of a neighbour."""


class BundleError(Exception):
    """A bundle cannot be made; the text is one line without the name of the file."""


class RecordedAnswer(Record):
    """What a command printed on a node; or `unknown`: why there is no answer."""

    code: int = 0
    output: Text = ""
    unknown: Text = ""


class RecordedSwitch(Record):
    """What rack.yaml declares of a switch."""

    model: str
    cages: Mapping[str, Mapping[str, str]] = Field(description="split, medium and fec of each declared cage")


class RecordedNode(Record):
    """What rack.yaml declares of a node."""

    vendor: str | None
    ports: Mapping[int, str] = Field(description="the other end of each cable")


class RecordedRack(Record):
    """What rack.yaml declares, without addresses and under other names."""

    nodes: Mapping[str, RecordedNode]
    switches: Mapping[str, RecordedSwitch]


class AcceptBundleFile(Record):
    """One file of a bundle."""

    path: Text
    bytes: int
    sha256: str


class AcceptManifest(Record):
    """What `manifest.json` of a bundle holds."""

    schema_: Literal["sparkrack.accept-bundle/1"] = Field(
        "sparkrack.accept-bundle/1", alias="schema", serialization_alias="schema"
    )
    made: datetime
    versions: Text = Field(description="of this program and its packages")
    files: tuple[AcceptBundleFile, ...] = Field(description="all others of the bundle")


@dataclass
class Recording:
    """What the hosts of a rack answered, before anything is replaced; a text is the reason why there is no answer."""

    nodes: dict[str, protocol.Answers | str] = field(default_factory=dict)
    switches: dict[str, ProbeReading | str] = field(default_factory=dict)


def bundle_files(rack: Rack, report: AcceptReport, recording: Recording) -> dict[str, bytes]:
    """Return the files of a bundle, anonymized. Raises BundleError when something that identifies the rack is left."""
    anonymizer = _make_anonymizer(rack, report, recording)
    host = anonymizer.hosts
    texts: dict[str, str] = {}
    owned: dict[str, list[str]] = {}
    """The parts of each text where a word of the owner can stand."""
    try:
        for name, answers in recording.nodes.items():
            found = dict(_anonymize_answers(answers, anonymizer))
            path = f"nodes/{host[name]}.json"
            texts[path] = _to_json({question: one.model_dump() for question, one in found.items()})
            owned[path] = [text for one in found.values() for text in (one.output, one.unknown)]
        for name, reading in recording.switches.items():
            if isinstance(reading, ProbeReading):
                path = f"switches/{host[name]}.json"
                texts[path] = anonymizer.record(_to_json(anonymized(reading, anonymizer.mask)))
                owned[path] = list(owners_words(json.loads(texts[path])))
        recorded, shown = _recorded_rack(rack, host), _anonymized_report(report, anonymizer)
        texts[_RACK] = _to_json(recorded.model_dump())
        ends = [end for node in recorded.nodes.values() for end in node.ports.values()]
        owned[_RACK] = [*recorded.nodes, *recorded.switches, *ends]
        texts[_REPORT] = shown.to_json() + "\n"
        owned[_REPORT] = list(_owners_words(shown))
    except ValueError as fault:
        raise BundleError(f"{fault}; nothing was written") from None
    for path, text in texts.items():
        if left := anonymizer.leaks(text, "\n".join(owned[path])):
            raise BundleError(f"{path} would still have {left[0]}; nothing was written")
    return {path: text.encode() for path, text in sorted(texts.items())}


def write_bundle(path: Path, files: Mapping[str, bytes], made: datetime, versions: str) -> None:
    """Write a bundle into a new file, its manifest first. Raises OSError."""
    manifest = AcceptManifest(
        made=made,
        versions=versions,
        files=tuple(
            AcceptBundleFile(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        ),
    )
    text = manifest.model_dump_json(by_alias=True, indent=1) + "\n"
    write_archive(path, {"manifest.json": text.encode(), **files}, made)


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _make_anonymizer(rack: Rack, report: AcceptReport, recording: Recording) -> Anonymizer:
    tables = [table for one in recording.switches.values() if isinstance(one, ProbeReading) for table in one.everything]
    texts = [report.to_json()]
    serials: list[str] = []
    names: list[str] = []
    for answers in recording.nodes.values():
        if isinstance(answers, str):
            texts.append(answers)
            continue
        texts += [answer.text for answer in answers.commands.values()]
        identity = answers.commands.get(IDENTITY)
        for line in identity.lines if identity else ():
            word, _, rest = line.partition(" ")
            if word == "serial":
                # "Default string" and the like are not serial numbers.
                serials += [rest.strip()] if re.search(r"\d", rest) else []
            elif word == "interface":
                names += [rest] if chosen_interface(rest) else []
            elif not _MAC.fullmatch(line):
                names += _parts_of_name(line)
    names += [*report.origin.by.split("@")]
    names += [
        part
        for text in (*texts[1:], *_owners_words(report))
        for name in names_in(text)
        for part in _parts_of_name(name)
    ]
    time = rack.declared(TimeOptions)
    names += [one for one in map(str, time.ntp if time else ()) if re.search("[a-z]", one)]
    texts += [mac.replace("-", ":") for text in texts for mac in _HYPHENS.findall(text)]
    return Anonymizer(rack, Mask.of(tables, texts, serials), names)


def _parts_of_name(name: str) -> tuple[str, ...]:
    """Return a name, its first label, and its domain where that is one of the owner: other hosts have it as well."""
    host, _, domain = name.partition(".")
    return (name, host, domain) if "." in domain else (name, host)


def _anonymize_answers(answers: protocol.Answers | str, anonymizer: Anonymizer) -> Iterator[tuple[str, RecordedAnswer]]:
    if isinstance(answers, str):
        yield IDENTITY, RecordedAnswer(unknown=anonymizer.text(answers))
        return
    for claim, answer in answers.commands.items():
        if claim != IDENTITY:
            yield claim, RecordedAnswer(code=answer.code, output=anonymizer.text(answer.text))
    for claim, why in answers.unknown.items():
        yield claim, RecordedAnswer(unknown=anonymizer.text(why))


def _recorded_rack(rack: Rack, host: Mapping[str, str]) -> RecordedRack:
    def end(text: str) -> str:
        name, slash, rest = text.partition("/")
        return f"{host.get(name, name)}{slash}{rest}"

    return RecordedRack(
        nodes={
            host[name]: RecordedNode(vendor=node.vendor, ports={at: end(str(to)) for at, to in node.ports.items()})
            for name, node in rack.nodes.items()
        },
        switches={
            host[name]: RecordedSwitch(
                model=switch.hardware.name,
                cages={
                    cage: {key: str(value) for key in ("split", "medium", "fec") if (value := getattr(spec, key))}
                    for cage, spec in switch.cages.items()
                },
            )
            for name, switch in rack.switches.items()
        },
    )


def _anonymized_report(report: AcceptReport, anonymizer: Anonymizer) -> AcceptReport:
    host = anonymizer.hosts

    def claim(one: ClaimResult) -> ClaimResult:
        hosts = [
            found.model_copy(update={"host": host[found.host], "evidence": anonymizer.cut(found.evidence)})
            for found in one.hosts
        ]
        return one.model_copy(update={"reason": anonymizer.cut(one.reason), "hosts": tuple(hosts)})

    return report.model_copy(
        update={
            "rack": "rack",
            "origin": report.origin.model_copy(update={"by": "user@operator", "file": "rack.yaml", "revision": ""}),
            "hosts": tuple(
                one.model_copy(update={"host": host[one.host], "reason": anonymizer.cut(one.reason)})
                for one in report.hosts
            ),
            "claims": tuple(map(claim, report.claims)),
        }
    )


def _owners_words(report: AcceptReport) -> Iterator[str]:
    """The texts of a report that come from the rack, and neither from claims.yaml nor from `_anonymized_report`."""
    for one in report.hosts:
        yield from (one.host, one.reason)
    for claim in report.claims:
        yield claim.reason
        for host in claim.hosts:
            yield from (host.host, host.evidence)

"""The bundle of `sparkrack accept`: what a rack answered, anonymized, in a small archive with the hash of each file."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, ValidationError

from core.model import Rack
from core.probes import protocol
from core.util.archive import read_archive, write_archive
from core.util.records import Record, Text
from roles.time.options import TimeOptions
from sparkrack.accept.anonymize import Anonymizer, chosen_interface
from sparkrack.accept.model import AcceptReport, ClaimResult
from switch.anonymize import Mask, owners_words
from switch.probe import ProbeReading, anonymized

IDENTITY = "identity"
"""Stands for IDENTITY_COMMAND among the answers of a node; it is no claim."""
IDENTITY_COMMAND = (
    "hostname; hostname -f 2>/dev/null; cat /etc/machine-id 2>/dev/null; cat /sys/class/net/*/address 2>/dev/null; "
    "cat /sys/class/dmi/id/*_serial /sys/class/dmi/id/product_uuid 2>/dev/null | sed 's/^/serial /'; "
    "ls /sys/class/net 2>/dev/null | sed 's/^/interface /'; true"
)
"""Prints what identifies a node. The answer is not in a bundle: it is replaced there."""
MOST_BYTES = 64 << 20
"""Maximum bytes of all files of a bundle that is read."""
NAMESPACE = "sparkrack-accept"
"""What a signature of a bundle is good for (`ssh-keygen -Y`)."""
_MANIFEST, _SIGNATURE, _REPORT, _RACK = "manifest.json", "manifest.json.sig", "accept.json", "rack.json"
_MAC = re.compile(r"\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b")
_HYPHENS = re.compile(r"(?<![0-9A-Za-z-])[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}(?![0-9A-Za-z-])")
"""A MAC address that nothing may print with colons, as that of a neighbour."""
_SIGN_SECONDS = 30


class BundleError(Exception):
    """A bundle cannot be made or read; the text is one line without the name of the file."""


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

    vendor: str
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
    files: tuple[AcceptBundleFile, ...] = Field(description="all others of the bundle, but the signature")


@dataclass
class Recording:
    """What the hosts of a rack answered, before anything is replaced; a text is the reason why there is no answer."""

    nodes: dict[str, protocol.Answers | str] = field(default_factory=dict)
    switches: dict[str, ProbeReading | str] = field(default_factory=dict)


@dataclass(frozen=True)
class AcceptBundle:
    """A bundle that was read. `nodes`: answers by node and claim; `switches`: the fixture of each, as text. `signer`:
    the fingerprint of the key that signed it; empty when it is not signed."""

    manifest: AcceptManifest
    report: AcceptReport
    rack: RecordedRack
    nodes: Mapping[str, Mapping[str, RecordedAnswer]]
    switches: Mapping[str, str]
    signer: str


def bundle_files(rack: Rack, report: AcceptReport, recording: Recording) -> dict[str, bytes]:
    """Return the files of a bundle, anonymized. Raises BundleError when something that identifies the rack is left."""
    anonymizer = _anonymizer(rack, report, recording)
    host = anonymizer.hosts
    texts: dict[str, str] = {}
    owned: dict[str, list[str]] = {}
    """The parts of each text where a word of the owner can stand."""
    try:
        for name, answers in recording.nodes.items():
            found = dict(_answers(answers, anonymizer))
            path = f"nodes/{host[name]}.json"
            texts[path] = _json({question: one.model_dump() for question, one in found.items()})
            owned[path] = [text for one in found.values() for text in (one.output, one.unknown)]
        for name, reading in recording.switches.items():
            if isinstance(reading, ProbeReading):
                path = f"switches/{host[name]}.json"
                texts[path] = anonymizer.forms(_json(anonymized(reading, anonymizer.mask).document))
                owned[path] = list(owners_words(json.loads(texts[path])))
        recorded, shown = _rack(rack, host), _report(report, anonymizer)
        texts[_RACK] = _json(recorded.model_dump())
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


def write_bundle(path: Path, files: Mapping[str, bytes], made: datetime, versions: str, key: Path | None) -> None:
    """Write a bundle. key: the private key of OpenSSH that signs it. Raises BundleError or OSError."""
    manifest = AcceptManifest(
        made=made,
        versions=versions,
        files=tuple(
            AcceptBundleFile(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        ),
    )
    first = {_MANIFEST: (manifest.model_dump_json(by_alias=True, indent=1) + "\n").encode()}
    if key:
        first[_SIGNATURE] = _signature(first[_MANIFEST], key)
    write_archive(path, {**first, **files}, made)


def check_key(key: Path) -> None:
    """Raise BundleError when a private key cannot sign."""
    _signature(b"", key)


def read_bundle(path: Path) -> AcceptBundle:
    """Read and check a bundle. Raises BundleError when it is damaged or is something else, OSError."""
    try:
        files = read_archive(path, MOST_BYTES)
        manifest = AcceptManifest.model_validate_json(files[_MANIFEST])
        _check(manifest, files)
        nodes = {
            _stem(name): {claim: RecordedAnswer.model_validate(one) for claim, one in json.loads(content).items()}
            for name, content in files.items()
            if name.startswith("nodes/")
        }
        return AcceptBundle(
            manifest=manifest,
            report=AcceptReport.model_validate_json(files[_REPORT]),
            rack=RecordedRack.model_validate_json(files[_RACK]),
            nodes=nodes,
            switches={_stem(name): text.decode() for name, text in files.items() if name.startswith("switches/")},
            signer=_signer(files[_MANIFEST], files[_SIGNATURE]) if _SIGNATURE in files else "",
        )
    except KeyError as missing:
        raise BundleError(f"has no {missing.args[0]}: it is no bundle of `sparkrack accept`") from None
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BundleError(f"{fault.title}: {place or 'the text'}: {first['msg']}") from None
    except (ValueError, AttributeError, RecursionError) as fault:
        raise BundleError(f"cannot be read as a bundle: {fault}") from None


def _check(manifest: AcceptManifest, files: Mapping[str, bytes]) -> None:
    """Raise BundleError unless the archive has exactly the files of the manifest, unchanged."""
    listed = {one.path: one.sha256 for one in manifest.files}
    if odd := sorted(listed.keys() ^ (files.keys() - {_MANIFEST, _SIGNATURE})):
        raise BundleError(f"{odd[0]} is in the archive or in {_MANIFEST}, and not in both")
    for name, digest in listed.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise BundleError(f"{name} is not what {_MANIFEST} lists: the bundle was changed or is damaged")


def _stem(name: str) -> str:
    return name.partition("/")[2].removesuffix(".json")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _anonymizer(rack: Rack, report: AcceptReport, recording: Recording) -> Anonymizer:
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
                # "Default string" and the like are no serial numbers.
                serials += [rest.strip()] if re.search(r"\d", rest) else []
            elif word == "interface":
                names += [rest] if chosen_interface(rest) else []
            elif not _MAC.fullmatch(line):
                names += _parts_of_name(line)
    names += [*report.origin.by.split("@")]
    time = rack.declared(TimeOptions)
    names += [one for one in map(str, time.ntp if time else ()) if re.search("[a-z]", one)]
    texts += [mac.replace("-", ":") for text in texts for mac in _HYPHENS.findall(text)]
    return Anonymizer(rack, Mask.of(tables, texts, serials), names)


def _parts_of_name(name: str) -> tuple[str, ...]:
    """Return a name, its first label, and its domain where that is one of the owner: other hosts have it as well."""
    host, _, domain = name.partition(".")
    return (name, host, domain) if "." in domain else (name, host)


def _answers(answers: protocol.Answers | str, anonymizer: Anonymizer) -> Iterator[tuple[str, RecordedAnswer]]:
    if isinstance(answers, str):
        yield IDENTITY, RecordedAnswer(unknown=anonymizer.text(answers))
        return
    for claim, answer in answers.commands.items():
        if claim != IDENTITY:
            yield claim, RecordedAnswer(code=answer.code, output=anonymizer.text(answer.text))
    for claim, why in answers.unknown.items():
        yield claim, RecordedAnswer(unknown=anonymizer.text(why))


def _rack(rack: Rack, host: Mapping[str, str]) -> RecordedRack:
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


def _report(report: AcceptReport, anonymizer: Anonymizer) -> AcceptReport:
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
    """The texts of a report that come from the rack, and neither from claims.yaml nor from `_report`."""
    for one in report.hosts:
        yield from (one.host, one.reason)
    for claim in report.claims:
        yield claim.reason
        for host in claim.hosts:
            yield from (host.host, host.evidence)


def _signature(content: bytes, key: Path) -> bytes:
    """Raises BundleError."""
    done = _ssh_keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], content)
    if done.returncode:
        raise BundleError(f"{key} signs nothing: {_last_line(done.stderr)}")
    return done.stdout


def _signer(content: bytes, signature: bytes) -> str:
    """Return the fingerprint of the key that made the signature. Raises BundleError when it is not one of the text."""
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        file = Path(folder) / _SIGNATURE
        file.write_bytes(signature)
        done = _ssh_keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(file)], content)
    found = re.search(rb"SHA256:[A-Za-z0-9+/]+", done.stdout)
    if done.returncode or not found:
        raise BundleError(f"{_SIGNATURE} is no signature of {_MANIFEST}: {_last_line(done.stderr or done.stdout)}")
    return found[0].decode()


def _ssh_keygen(words: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *words], input=content, capture_output=True, timeout=_SIGN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise BundleError(f"ssh-keygen gives no answer: {fault}") from None


def _last_line(text: bytes) -> str:
    return (text.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]

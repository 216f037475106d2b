"""docs/reference/rack-keys.md has every key of a rack file: from the model, and from the comments of the example."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any

import pytest

from core.model.fields import Section, unfit
from roles.blackbox.options import BlackboxOptions, JournalOptions, KdumpOptions, PanicOptions, RecorderOptions
from roles.watch.options import KeepOptions, WatchOptions
from serving.options import ServedUnit, ServingCustom, ServingGateway
from tests.generated import check
from tests.unit.model.racks import faults
from tests.unit.model.test_reference import KEYS, TEXT, Place, explained, refers, shown

DOCUMENT = "docs/reference/rack-keys.md"
COLUMNS = ("key", "type and range", "default", "unit", "reason", "example")
UNITS: Mapping[str, str] = {
    "access.port": "TCP port",
    "nodes.*.host": "host number",
    "switches.*.port": "TCP port",
    "switches.*.mtu": "bytes",
    "switches.*.l2mtu": "bytes",
    "switches.*.reader.port": "TCP port",
    "switches.*.backups": "files",
    "fabric.mtu": "bytes",
    "fabric.vlans": "VLAN ID",
    "memory.overcommit_memory": "kernel mode",
    "memory.min_free_kbytes": "KiB",
    "memory.floor": "M or G",
    "blackbox.watchdog": "s, m or h",
    "blackbox.panic.after": "s, m or h",
    "blackbox.panic.rcu_stalls": "stalls",
    "blackbox.journal.sync": "s, m or h",
    "blackbox.journal.keep": "M or G",
    "blackbox.clock_cap": "MHz",
    "blackbox.recorder.rate": "samples a second",
    "blackbox.recorder.keep": "s, m or h",
    "blackbox.kdump.reserve": "M or G",
    "watch.interval": "s, m or h",
    "watch.keep.days": "days",
    "watch.keep.size": "M or G",
    "watch.psus": "supplies",
    "docker.memory": "M or G",
    "docker.log_size": "M or G",
    "docker.log_files": "files",
    "preflight.disk_free": "M or G",
    "preflight.clock_skew": "seconds",
    "serving.port": "TCP port",
    "serving.gateway.port": "TCP port",
    "serving.gateway.body": "M or G",
    "serving.units.*.parallel.tensor": "slices",
    "serving.units.*.parallel.pipeline": "stages",
    "serving.units.*.context": "tokens",
    "serving.units.*.sequences": "sequences",
    "serving.units.*.memory": "share of a node",
    "serving.units.*.kv": "M or G",
    "serving.units.*.api.port": "TCP port",
    "serving.units.*.restart.times": "starts",
    "serving.units.*.restart.within": "s, m or h",
    "serving.units.*.probe.every": "s, m or h",
    "serving.units.*.probe.limit": "s, m or h",
    "serving.units.*.probe.misses": "requests",
    "serving.units.*.probe.ready": "s, m or h",
    "serving.units.*.cache": "M or G",
    "serving.units.*.shm": "M or G",
    "serving.units.*.overhead": "M or G",
    "serving.units.*.drain": "s, m or h",
    "serving.units.*.custom.weights": "M or G",
}
"""The unit of each number and of each size."""
SIZES = tuple(key for key, unit in UNITS.items() if unit == "M or G")
DURATIONS = tuple(key for key, unit in UNITS.items() if unit == "s, m or h")
LIMITED: Mapping[Place, type[Section]] = {
    ("blackbox", "watchdog"): BlackboxOptions,
    ("blackbox", "panic", "after"): PanicOptions,
    ("blackbox", "journal", "sync"): JournalOptions,
    ("blackbox", "journal", "keep"): JournalOptions,
    ("blackbox", "recorder", "keep"): RecorderOptions,
    ("blackbox", "kdump", "reserve"): KdumpOptions,
    ("watch", "interval"): WatchOptions,
    ("watch", "keep", "size"): KeepOptions,
}
"""Sizes and durations with a range of their own in a section that the example shows as a comment."""
SECRETS: Mapping[str, str] = {
    "env": "the environment variable that holds the secret",
    "file": "the file that holds the secret, readable by its owner only",
    "command": "the program, with its arguments, that prints the secret",
}
WIDEST = 60
"""Characters of an example; a longer one gives way to that of the schema."""
_REQUIRED = re.compile(r"(?:^|(?<=[.)] ))required(?:[;.] *|$)")
_ABSENT = re.compile(r"(?:[;.] *|^)absent: ([^;.]+)")
_DEFAULT = re.compile(r"; default: (?:\[\]|\"[^\"]*\")(?=;|$)|(?:^|(?<=\. ))default: (?:\[\]|\"[^\"]*\")(?:; |$)")


def size_range(place: Place) -> str:
    """The range of a size as the loader states it, when a file has one that is too large."""
    key = place[-1]
    if place[0] == "serving":
        model = ServingGateway if place[1] == "gateway" else ServingCustom if "custom" in place else ServedUnit
        fault = unfit(model.model_fields[key].rebuild_annotation(), "9999G")
        return fault.rpartition("write ")[2]
    if place in LIMITED:
        return limited_range(place, "9999G")
    section = TEXT.index(f"\n{place[0]}:")
    text = TEXT[:section] + re.sub(rf"^(  {key}:) \S+", r"\1 9999G", TEXT[section:], count=1, flags=re.MULTILINE)
    (fault,) = faults(text)
    found = re.search(r"write (\w+ to \w+)", str(fault))
    assert found, fault
    return found[1]


def limited_range(place: Place, value: str) -> str:
    """The range of a key as its model states it for a value outside of it."""
    found = re.search(r"write (\w+ to \w+)", unfit(LIMITED[place].model_fields[place[-1]].rebuild_annotation(), value))
    assert found, place
    return found[1]


def kind_in_words(kind: Mapping[str, Any], place: Place) -> str:
    """The type of a key and its range."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return "one of `env`, `file`, `command`" if name == "SecretRef" else "section"
    if several := kind.get("anyOf") or kind.get("oneOf"):
        return " or ".join(kind_in_words(one, place) for one in several)
    if "enum" in kind:
        return "one of " + ", ".join(f"`{one}`" for one in kind["enum"])
    if "const" in kind:
        return f"`{written(kind['const'])}`"
    match kind["type"]:
        case "boolean":
            return "`true` or `false`"
        case "number":
            return f"number, {kind['minimum']} to {kind['maximum']}"
        case "integer":
            return f"integer, {kind['minimum']} to {kind['maximum']}"
        case "array":
            return f"list of: {kind_in_words(kind['items'], place)}"
        case "object":
            inner = kind["additionalProperties"]
            return f"mapping of names to: {'any value' if inner is True else kind_in_words(inner, place)}"
    if ".".join(place) in SIZES:
        return f"size, {size_range(place)}"
    if ".".join(place) in DURATIONS:
        return f"duration, {limited_range(place, '24h') if place in LIMITED else '1s to 24h'}"
    formats = {"ipv4": "IPv4 address", "ipv4network": "IPv4 network", "path": "path"}
    return formats.get(kind.get("format", ""), "text")


def written(value: object) -> str:
    """A value as YAML in one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {written(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case str() if re.fullmatch(r"[A-Za-z_~][\w./:~-]*|[\d.]+/\d+|\d+\.\d+\.\d+\S*|\d+x\d+G|\d+[MGsmh]", value):
            return value
    return json.dumps(value)


def example(place: Place) -> str:
    kind = KEYS[place].kind
    if refers(place):
        forms = {"file": "crs812.password", "command": "[pass, show, crs812]"}
        return forms.get(place[-1]) or written(shown()[place][0])
    made = written(shown()[place][0])
    return made if len(made) <= WIDEST else next(iter(map(str, kind.get("examples", ()))), "")


def default(place: Place, comment: str) -> str:
    key = KEYS[place]
    if refers(place):
        return "one of the three is required"
    if key.required:
        return "required"
    if isinstance(key.default, dict) and "$ref" in key.kind:
        return "the defaults of its keys"
    absent = _ABSENT.search(comment)
    if key.default in (None, {}) and absent:
        return f"– ({absent[1].strip()})"
    return "–" if key.default is None else f"`{written(key.default)}`"


def reason(place: Place, comments: Mapping[Place, str]) -> str:
    if refers(place):
        return SECRETS[place[-1]]
    if place not in comments:
        above = next(place[:end] for end in range(len(place), 0, -1) if place[:end] in comments)
        return f"see `{'.'.join(above)}`"
    text = _DEFAULT.sub("", _ABSENT.sub("", _REQUIRED.sub("", comments[place])))
    return re.sub(r"\s+", " ", text).strip(" ;")


@cache
def rows() -> dict[Place, tuple[str, ...]]:
    """Every key with the cells of its row."""
    return dict(_list_rows())


def _list_rows() -> Iterator[tuple[Place, tuple[str, ...]]]:
    comments = explained()
    for place, key in KEYS.items():
        path = ".".join(place)
        made = example(place)
        yield (
            place,
            (
                f"`{path}`",
                kind_in_words(key.kind, place),
                default(place, comments.get(place, "")),
                UNITS.get(path, ""),
                reason(place, comments),
                f"`{made}`" if made else "",
            ),
        )


def page() -> str:
    lines: list[str] = []
    order = [next(iter(group)) for _, group in groupby(rows(), key=lambda place: place[0])]
    head = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    alone = [place for place in order if sum(other[0] == place[0] for other in rows()) == 1]
    for title, places in [
        ("the file as a whole", alone),
        *(
            (f"`{place[0]}`", [other for other in rows() if other[0] == place[0]])
            for place in order
            if place not in alone
        ),
    ]:
        lines += [f"## {title[0].upper()}{title[1:]}", "", *head]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in rows()[place]) + " |" for place in places]
        lines.append("")
    return "\n".join(lines)


def test_the_page_has_every_key() -> None:
    check(DOCUMENT, "keys", page())


@pytest.mark.parametrize("place", KEYS, ids=".".join)
def test_a_row_has_what_an_operator_asks(place: Place) -> None:
    row = dict(zip(COLUMNS, rows()[place], strict=True))
    assert all(row[column] for column in ("key", "type and range", "default", "reason")), row
    assert row["example"] or "section" in row["type and range"]
    number = re.search(r"\binteger\b|\bsize\b|\bnumber\b|\bduration\b", row["type and range"])
    assert bool(number) == bool(row["unit"]), "a number has a unit, and nothing else has"


def test_the_units_are_of_keys() -> None:
    assert set(UNITS) <= {".".join(place) for place in rows()}

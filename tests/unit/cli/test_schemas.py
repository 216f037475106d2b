"""The JSON that verbs print: its schemas are kept in docs/reference/schemas, made from the models that print it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from core.util.event import EventKind
from core.verify.report import Report
from sparkrack.accept.bundle import AcceptManifest
from sparkrack.accept.model import AcceptReport
from sparkrack.autopsy.model import AutopsyReport
from sparkrack.check.check_rack_file import Checked
from sparkrack.drift.findings import Drift
from sparkrack.engine import journal as running
from sparkrack.engine.apply_result import ApplyResult
from sparkrack.engine.plan import HostState, Plan
from sparkrack.rebuild import journal as rebuilding
from sparkrack.rebuild.model import RebuildReport
from sparkrack.serving.bench_record import ServeBenchRecord
from sparkrack.serving.check_units import ServeCheckRecord, ServeUnitsRecord
from sparkrack.serving.unit_status import ServeStatus
from sparkrack.status.drills import DrillResult
from sparkrack.status.model import Status
from sparkrack.status.runs import RunDetail, RunList
from sparkrack.support.bundle import SupportManifest
from sparkrack.topology.model import Topology
from sparkrack.watch.model import WatchReport
from tests.generated import REPOSITORY, check

MODELS: Mapping[str, type[BaseModel]] = {
    "check": Checked,
    "serve-check": ServeCheckRecord,
    "serve-units": ServeUnitsRecord,
    "serve-status": ServeStatus,
    "serve-bench": ServeBenchRecord,
    "plan": Plan,
    "apply": ApplyResult,
    "drift": Drift,
    "verify": Report,
    "accept": AcceptReport,
    "accept-bundle": AcceptManifest,
    "topology": Topology,
    "status": Status,
    "watch": WatchReport,
    "runs": RunList,
    "run": RunDetail,
    "rebuild": RebuildReport,
    "autopsy": AutopsyReport,
    "drill": DrillResult,
    "support": SupportManifest,
}
"""What `sparkrack VERB --json` prints; `run` is that of `sparkrack runs ID`, `drill` is the file that a drill keeps,
`support` and `accept-bundle` are manifest.json of an archive."""
JOURNALS: Mapping[str, Any] = {"journal": running, "rebuild-journal": rebuilding}
"""What `sparkrack apply` and `sparkrack rebuild` keep: each line is one of several kinds."""
KEPT = (*MODELS, *JOURNALS)
FOLDER = REPOSITORY / "docs/reference/schemas"
DOCUMENT = "docs/reference/json.md"


def schema(verb: str) -> dict[str, Any]:
    kind: Any = JOURNALS[verb].Line if verb in JOURNALS else MODELS[verb]
    return TypeAdapter(kind).json_schema(by_alias=True, mode="serialization")


def version(verb: str) -> str:
    """What the model says of itself; of a journal its first line does."""
    whole = schema(verb)
    first = whole["$defs"][JOURNALS[verb].KINDS[0].__name__] if verb in JOURNALS else whole
    reported = str(first["properties"]["schema"]["const"])
    match = re.fullmatch(rf"sparkrack\.{verb}/(\d+)", reported)
    assert match, reported
    return match[1]


def fields(whole: dict[str, Any], part: dict[str, Any], path: str = "") -> Iterator[str]:
    """A line for each field: where it is, and what it holds."""
    for name, field in part.get("properties", {}).items():
        for place, kind, below in _list_kinds(whole, field, f"{path}{name}"):
            yield f"{place}: {kind}"
            if below:
                yield from fields(whole, below, f"{place}.")


def _list_kinds(
    whole: dict[str, Any], field: dict[str, Any], place: str
) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    if "$ref" in field:
        field = whole["$defs"][field["$ref"].rpartition("/")[2]]
    if "anyOf" in field:
        kinds = [kind for one in field["anyOf"] for kind in _list_kinds(whole, one, place)]
        objects = [kind for kind in kinds if kind[2]]
        names = " or ".join(dict.fromkeys(kind[1] for kind in kinds))
        yield (kinds[0][0], names, objects[0][2] if objects else None)
    elif field.get("type") == "array":
        items = field.get("items") or {"type": "/".join(str(one.get("type")) for one in field.get("prefixItems", []))}
        yield from _list_kinds(whole, items, f"{place}[]")
    elif "enum" in field or "const" in field:
        yield (place, " | ".join(json.dumps(value) for value in field.get("enum") or [field["const"]]), None)
    elif "properties" in field:
        yield (place, "object", field)
    elif isinstance(field.get("additionalProperties"), dict):
        yield from _list_kinds(whole, field["additionalProperties"], f"{place}.NAME")
    else:
        yield (place, str(field.get("format") or field.get("type") or "any"), None)


@pytest.mark.parametrize("verb", KEPT)
def test_the_schema_that_is_kept_is_that_of_the_model(verb: str) -> None:
    path = FOLDER / f"{verb}-{version(verb)}.json"
    text = json.dumps(schema(verb), indent=1) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), "UPDATE_DOCS=1 makes it"
    assert path.read_text() == text, f"{path.name} is not what the verb prints; UPDATE_DOCS=1 renews it"


@pytest.mark.parametrize("verb", MODELS)
def test_a_document_of_another_version_is_not_read_as_this_one(verb: str) -> None:
    other = {"schema": f"sparkrack.{verb}/0"}
    with pytest.raises(ValidationError) as caught:
        MODELS[verb].model_validate(other)
    assert [fault["type"] for fault in caught.value.errors() if fault["loc"] == ("schema",)] == ["literal_error"]


@pytest.mark.parametrize("verb", MODELS)
def test_the_fields_that_are_shown_are_those_of_the_model(verb: str) -> None:
    whole = schema(verb)
    lines = list(fields(whole, whole))
    assert lines[0] == f'schema: "sparkrack.{verb}/{version(verb)}"'
    check(DOCUMENT, f"{verb} fields", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", JOURNALS)
def test_the_lines_of_a_journal_that_are_shown_are_those_of_the_models(name: str) -> None:
    whole = schema(name)
    events = JOURNALS[name].EVENTS
    kinds = whole["discriminator"]["mapping"]
    shown = {event: list(fields(whole, whole["$defs"][kind.rpartition("/")[2]])) for event, kind in kinds.items()}
    assert list(shown) == sorted(events)
    common = shown[events[0]][:2]
    assert all(lines[:2] == common for lines in shown.values())
    text = [*common, *chain.from_iterable(["", *shown[event][2:]] for event in events)]
    check(DOCUMENT, f"{name} lines", "\n".join(text) + "\n")


def test_nothing_else_is_kept() -> None:
    """But for the schema of the rack file (tests/unit/model/test_reference.py)."""
    ours = {path.name for path in FOLDER.iterdir()} - {"rack.json"}
    assert ours == {f"{verb}-{version(verb)}.json" for verb in KEPT}


def test_every_kind_of_line_is_explained() -> None:
    text = (REPOSITORY / DOCUMENT).read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [sort.value for sort in EventKind]
    for standing in HostState:
        assert f"`{standing}`" in text

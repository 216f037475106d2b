"""Each export is judged by what the other system publishes: its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sparkrack.serving.export.lws import lws_files
from sparkrack.serving.export.ray import ray_files
from sparkrack.serving.export.source import ExportSource
from tests.unit.serving.export.exported import ON_RAY, SOURCES, parsed
from tests.unit.test_shell_templates import findings

SCHEMAS = Path(__file__).parent / "schemas"


def stored(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def strict(schema: Any, *, names: bool = False) -> Any:
    """The schema of a resource as `kubectl apply` holds a file to it: a field that it does not have is an error.

    `names`: the keys of this mapping are names of fields.
    """
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value, names=key == "properties" and not names) for key, value in schema.items()}
    if not names and "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


LWS = jsonschema.Draft202012Validator(strict(stored("leaderworkerset")))
RAY = jsonschema.Draft7Validator(stored("ray-schema"))


def faults(validator: Any, document: Any) -> list[str]:
    return [f"{'.'.join(map(str, fault.absolute_path))}: {fault.message}" for fault in validator.iter_errors(document)]


def lws(one: ExportSource) -> Any:
    return parsed(lws_files(one)[0].text)


def ray(one: ExportSource) -> Any:
    return parsed(ray_files(one)[0].text)


@pytest.mark.parametrize("name", SOURCES)
def test_a_manifest_is_a_leader_worker_set(name: str) -> None:
    manifest = lws(SOURCES[name])
    assert (manifest["apiVersion"], manifest["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    # DNS-1035, which LWS asks of the name.
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", manifest["metadata"]["name"])
    assert faults(LWS, manifest) == []


@pytest.mark.parametrize("name", ON_RAY)
def test_a_cluster_file_is_of_ray(name: str) -> None:
    assert faults(RAY, ray(SOURCES[name])) == []


def _engine_container(document: Any) -> Any:
    return document["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]


WRONG: dict[str, tuple[Any, Callable[[ExportSource], Any], Callable[[Any], Any]]] = {
    "lws": (LWS, lws, lambda document: document["spec"]["leaderWorkerTemplate"]),
    "lws: a container": (LWS, lws, _engine_container),
    "ray": (RAY, ray, lambda document: document),
    "ray: docker": (RAY, ray, lambda document: document["docker"]),
}
"""Places of each format in which a key is wrong once."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_key_is_found(name: str) -> None:
    validator, made, place = WRONG[name]
    document = made(SOURCES["fabric"])
    place(document)["wrong_key"] = 1
    (fault,) = faults(validator, document)
    assert "wrong_key" in fault


@pytest.mark.parametrize(
    ("validator", "made", "place", "key", "value"),
    [
        (LWS, lws, lambda document: document["spec"]["leaderWorkerTemplate"], "restartPolicy", "Always"),
        (LWS, lws, _engine_container, "args", ["vllm", 8000]),
        (RAY, ray, lambda document: document, "head_start_ray_commands", [1]),
    ],
)
def test_a_wrong_value_is_found(
    validator: Any, made: Callable[[ExportSource], Any], place: Callable[[Any], Any], key: str, value: object
) -> None:
    document = made(SOURCES["fabric"])
    place(document)[key] = value
    assert faults(validator, document)


@pytest.mark.parametrize("name", ON_RAY)
def test_the_program_for_ray_is_clean(name: str) -> None:
    program = ray_files(SOURCES[name])[1]
    assert findings(program.text) == ""
    assert program.program


def test_a_head_names_the_revision_of_the_rack_file() -> None:
    one = SOURCES["plain"]
    line = f"# From {one.rack.source.name}, revision 0123456789ab with uncommitted changes. "
    assert line in lws_files(one)[0].text
    for file in ray_files(SOURCES["fabric"]):
        assert line in file.text

"""A served unit with what a lock file has of it: two nodes behind a switch, the unit of the example."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.model import load
from core.model.image_lock import Pin
from core.model.model_lock import ModelFile, ModelRecord
from core.util.managed_file import ManagedFile
from serving import desired
from serving import gateway as gateway
from serving import gateway_router as gateway_router
from serving.desired import LockedUnit
from serving.options import served_units
from tests.unit.model.serving_racks import SGLANG, VLLM, loaded, machines, text, unit
from tests.unit.test_project import TOP

IMAGE_ID = f"sha256:{'0123456789abcdef' * 4}"
PINS = {VLLM: Pin(None, IMAGE_ID), SGLANG: Pin(None, IMAGE_ID)}
RECORD = ModelRecord(
    "owner/qwen",
    "0" * 40,
    (ModelFile("model-1-of-2.safetensors", 3 << 30, "0" * 64), ModelFile("config.json", 700, "0" * 64)),
    {},
)
RECORDS = {name: replace(RECORD, source=f"owner/{name}") for name in ("qwen", "nemotron")}
KEY, LEASE = "sk-quiet-horse-1234567890", "0f" * 32


def locked(keys: dict[str, Any] | None = None, count: int = 2, joined: str = "switch", **sections: Any) -> LockedUnit:
    """A unit called one, with these keys."""
    rack = loaded(text({"one": keys or unit()}, machines(count, joined), **sections))
    return desired.locked_unit(rack, served_units(rack)["one"], PINS, RECORDS)


def example() -> LockedUnit:
    """The unit of examples/deepseek-v4-flash-2-nodes.yaml."""
    rack = load(TOP / "examples/deepseek-v4-flash-2-nodes.yaml")
    (one,) = served_units(rack).values()
    return desired.locked_unit(rack, one, {one.image: Pin(None, IMAGE_ID)}, {one.model: RECORD})


def head_files() -> tuple[ManagedFile, ...]:
    """The files of the head of that unit."""
    return desired.files(example(), example().nodes[0])


def gateway_file(name: str) -> str:
    """The text of a file of a gateway in front of that unit, by the last part of its path."""
    served = {"units": {"one": unit()}, "gateway": {"node": "n0", "keys": {"alice": {"env": "ALICE"}}}}
    rack = loaded(text({}, serving=served))
    declared = gateway.declared(rack, "n0")
    assert declared
    return content((*gateway.files(rack, declared), *gateway_router.files(rack, declared)), name)


def content(files: tuple[ManagedFile, ...], name: str) -> str:
    """The text of one file, by the last part of its path."""
    (found,) = (file for file in files if file.path.rpartition("/")[2] == name)
    return found.content.decode()

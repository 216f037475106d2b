"""Rack files with units for these tests: two nodes by default, and the records of their models in the lock file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from core.model import ConfigError, Rack, load
from tests.unit.model.racks import ACCESS, SUBNETS, node, switch

Records = Mapping[str, Any] | None
"""A section of the lock file."""

CONFIGS = Path(__file__).parents[1] / "serving" / "engines" / "model_configs"
VLLM, SGLANG = "nvcr.io/nvidia/vllm:26.04-py3", "scitrera/dgx-spark-sglang:0.5.12"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
IMAGE_ID = "sha256:" + "ab" * 32
MEASURED_WITH: dict[str, Any] = {
    "source": "owner/qwen",
    "revision": COMMIT,
    "image": IMAGE_ID,
    "quantization": "",
    "kv_cache_dtype": "fp8",
    "expert": False,
    "speculative": "",
    "batch": "",
    "context": 65536,
    "sequences": 8,
}
"""What a start of `unit(args={"kv-cache-dtype": "fp8"})` was measured with."""

QWEN: dict[str, Any] = {
    "engine": "vllm",
    "version": "0.19.1",
    "image": VLLM,
    "model": "qwen",
    "nodes": ["n0", "n1"],
    "parallel": {"tensor": 2},
    "context": 65536,
    "memory": 0.8,
}
"""A unit of two nodes that nothing is wrong with."""
NEMOTRON: dict[str, Any] = {
    "engine": "sglang",
    "version": "0.5.12",
    "image": SGLANG,
    "model": "nemotron",
    "nodes": "all",
    "parallel": {"tensor": 8},
    "context": 262144,
    "memory": 0.85,
}
"""A unit of eight nodes that nothing is wrong with."""
ONE_UNIT = """
images: [nvcr.io/nvidia/vllm:26.04-py3]
models: {qwen: {source: Qwen/Small}}
serving:
  units:
    one: {engine: vllm, version: 0.19.1, image: 'nvcr.io/nvidia/vllm:26.04-py3', model: qwen, nodes: [spark1, spark2],
      parallel: {tensor: 2}, context: 65536, memory: 0.8}
"""
"""The sections of a rack file of two nodes, spark1 and spark2, that declare one unit."""


def unit(base: Mapping[str, Any] = QWEN, **keys: Any) -> dict[str, Any]:
    """A unit with other keys; None removes one."""
    return {key: value for key, value in {**base, **keys}.items() if value is not None}


def machines(count: int, joined: str = "switch") -> str:
    """The hosts of a rack file: nodes n0, n1, ... behind a switch, or in a ring."""
    if joined == "ring":
        ports = [{0: f"n{(number + 1) % count}/1"} for number in range(count)]
        nodes = "".join(node(f"n{number}", number, ports[number]) for number in range(count))
        return f"rack: ring\n{ACCESS}nodes:\n{nodes}fabric: {{pool: 10.100.0.0/20}}\n"
    cages = {f"qsfp56-dd-{cage}": "4x100G" for cage in (1, 2)}
    legs = [f"s0/{cage}-{lane}" for cage in cages for lane in (1, 3, 5, 7)]
    nodes = "".join(node(f"n{number}", number, {1: legs[number]}) for number in range(count))
    return f"rack: served\n{ACCESS}nodes:\n{nodes}switches:\n{switch('s0', 0, cages)}{SUBNETS}"


def text(units: Mapping[str, Any], hosts: str = "", port: int | None = None, **sections: Any) -> str:
    """A rack file whose `serving` has these units: one line for each key of a unit."""
    rest = {
        "images": [VLLM, SGLANG],
        "models": {name: {"source": f"owner/{name}"} for name in ("qwen", "nemotron", "other")},
        "serving": {**({"port": port} if port else {}), "units": dict(units)},
        **sections,
    }
    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style, writer.width, writer.sort_base_mapping_type_on_output = False, 10**6, False
    writer.representer.ignore_aliases = lambda _data: True  # a rack file has no anchors
    written = StringIO()
    writer.dump(rest, written)
    return (hosts or machines(2)) + written.getvalue()


def record(config: str = "", weights: int = 0, **changes: object) -> dict[str, Any]:
    """The record of a model in the lock file, without its source, with a configuration of CONFIGS.

    `weights`: bytes of its weight files, none if 0. `changes`: other values of config.json.
    """
    folder = CONFIGS / config
    texts = {file.name: file.read_text() for file in folder.glob("*.json")} if config else {}
    if changes:
        texts["config.json"] = json.dumps({**json.loads(texts["config.json"]), **changes})
    half = {"size": weights // 2, "sha256": "0" * 64}
    files = {f"model-{part}-of-2.safetensors": half for part in (1, 2)} if weights else {}
    files["config.json"] = {"size": 1, "sha256": "0" * 64}
    return {"revision": COMMIT, "files": files, "configurations": texts}


def put(folder: Path, file: str, models: Records = None, units: Records = None) -> Path:
    """Write a rack file, and its lock file if it has records; return the path of the rack file. A record without a
    source is of what the rack file declares.

    What was measured (`units`) was measured with an image, so that then the lock file has its ID.
    """
    path = folder / "rack.yaml"
    path.write_text(file)
    if models is not None:
        pins = {image: {"digest": None, "id": IMAGE_ID} for image in (VLLM, SGLANG)} if units else {}
        declared = YAML(typ="safe", pure=True).load(file).get("models", {})
        made = {name: {**_declared_source(declared.get(name, {})), **entry} for name, entry in models.items()}
        lock = {"images": pins, "models": made, **({"units": dict(units)} if units else {})}
        (folder / "rack.lock.json").write_text(json.dumps(lock))
    return path


def _declared_source(model: Mapping[str, Any]) -> dict[str, Any]:
    """What the record of a model has of its source."""
    chosen = {"chosen": model["files"]} if "files" in model else {}
    return {"source": model.get("source"), "requested": model.get("revision"), **chosen}


def loaded(file: str, models: Records = None, units: Records = None) -> Rack:
    with tempfile.TemporaryDirectory() as folder:
        return load(put(Path(folder), file, models, units))


def refusals(file: str, models: Records = None, units: Records = None) -> list[str]:
    """Return each problem as `PATH @ WHAT THE LINE BEGINS WITH: what; right`, [] for a sound file.

    The line is shown by its text, since its number says nothing in a file that a test makes.
    """
    try:
        loaded(file, models, units)
    except ConfigError as error:
        lines = file.splitlines()
        return [
            f"{fault.path} @ {lines[fault.line - 1].strip().partition(':')[0]}: {fault.what}; {fault.right}"
            if fault.line
            else str(fault)
            for fault in error.faults
        ]
    return []

"""The units of examples/ and of racks for these tests, as what the formats are made of."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.model import Rack, load
from core.model.image_lock import Pin
from roles.rdma.options import socket_addresses
from serving.options import ServedUnit, served_units
from sparkrack.serving.export.source import ExportSource, export_source
from tests.unit.model.serving_racks import NEMOTRON, QWEN, loaded, machines, text, unit
from tests.unit.serving.engines.example_lines import EXAMPLES

PIN = Pin(f"sha256:{'a' * 64}", f"sha256:{'b' * 64}")
ODD = 'it\'s "$(LWS_GROUP_SIZE)" $$ $HOME ${HOME} `id` \\ #!'
"""A text that each format has to write with care: in Kubernetes and a shell it means something else."""


def source(rack: Rack, declared: ServedUnit, pin: Pin | None = PIN) -> ExportSource:
    return export_source(rack, declared, pin, "0123456789ab+")


def of(keys: dict[str, Any], hosts: str = "", pin: Pin | None = PIN, **sections: Any) -> ExportSource:
    """A unit of these keys, as `text` takes them."""
    rack = loaded(text({"one": keys}, hosts, **sections))
    return source(rack, served_units(rack)["one"], pin)


def _load_examples() -> dict[str, ExportSource]:
    found = {}
    for path in EXAMPLES:
        rack = load(path)
        for name, declared in served_units(rack).items():
            found[f"{path.stem}:{name}"] = source(rack, declared)
    return found


KEYED = {"port": 30000, "listen": "fabric", "key": {"file": "one.key"}}
SOURCES: Mapping[str, ExportSource] = {
    **_load_examples(),
    "one node": of(unit(nodes=["n1"], parallel={"tensor": 1}, api={"key": {"env": "KEY"}})),
    "head is not the first": of(unit(nodes=["n1", "n0"], cache="20G", args={"served-model-name": ODD}, api=KEYED)),
    "fabric": of(
        unit(engine="vllm-ray", args={"served-model-name": ODD}, env={"SOME_WORD": ODD}, api=KEYED),
        rdma={"sockets": "fabric"},
    ),
    "sglang": of(unit(NEMOTRON, env={"SOME_WORD": ODD}, api=KEYED), machines(8)),
    "ring": of(unit(nodes=["n0", "n1", "n2"], parallel={"pipeline": 3}), machines(3, "ring")),
    "plain": of(QWEN),
}
"""Each unit of examples/, and some that are harder to write."""
ON_RAY = [name for name, one in SOURCES.items() if one.unit.engine == "vllm-ray"]


def addresses(one: ExportSource) -> dict[str, str]:
    known = socket_addresses(one.rack)
    return {name: str(known[name]) for name in one.nodes}


def parsed(document: str) -> Any:
    """The data of a YAML file, by a parser that knows YAML 1.1, as those of Go and Ray do."""
    return yaml.load(document, Loader=yaml.CSafeLoader)


def program(folder: Path, name: str, body: str) -> None:
    """A stand-in for a program, first on PATH."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the stand-ins in a folder, and these variables alone."""
    return subprocess.run(
        command, env={"PATH": f"{folder}:/usr/bin:/bin", **variables}, capture_output=True, text=True, timeout=60
    )


def records(path: Path) -> list[list[str]]:
    """What a stand-in wrote: one word a NUL, one call a line break."""
    return [call.split("\0")[:-1] for call in path.read_text().split("\n\0") if call]


RECORD = 'printf \'%s\\0\' "$(basename "$0")" "$@" >>"$RECORD"; printf \'\\n\\0\' >>"$RECORD"'
"""What a stand-in does: it writes its name and its arguments."""

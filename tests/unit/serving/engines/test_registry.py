"""An engine is one folder: with it, and nothing else, rack.yaml, the launcher, the gate and the unit file know it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from serving.engines.registry import ENGINES, FAMILIES
from tests.generated import REPOSITORY

TOY = """
from serving.engines.engine import KeyForm, Progress, ServingEngine

ENGINES = (
    ServingEngine(
        name="toy-engine",
        family="toy-engine",
        title="Toy",
        argv=lambda place: ["toy", place.model, *place.listen],
        key=lambda _: KeyForm(option="--key-file", path="/run/sparkrack/toy"),
        progress=lambda _: Progress(("toy:steps",), (), ("toy:running", "toy:waiting")),
        looks=lambda _unit, _rank, _ranks: ("program:toy",),
    ),
)
"""
QUESTION = """
import json, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from core.model import load
from core.model.image_lock import Pin
from core.model.model_lock import read
from serving import desired
from serving.options import served_units
from tests.unit.model.serving_racks import IMAGE_ID, VLLM, put, record, text, unit

keys = unit(engine="toy-engine", nodes=["n1"], parallel=None, api={"key": {"env": "KEY"}})
path = put(Path(sys.argv[1]), text({"one": keys}), {"qwen": record("Qwen3-235B-A22B", 10**9)})
rack = load(path)
pins = {VLLM: Pin(None, IMAGE_ID)}
locked = desired.locked_unit(rack, served_units(rack)["one"], pins, read(path.with_name("rack.lock.json")))
files = {Path(one.path).name: one.content.decode() for one in desired.files(locked, "n1")}
secrets = {Path(one.path).name: one.content.get_secret_value().decode()
           for one in desired.private_files(locked, "n1", "sk-1", "x" * 32)}
print(json.dumps([files["one.args"].splitlines(), files["one.json"], files["one.gate.json"], secrets["one.key"]]))
"""


def test_a_folder_is_all_that_an_engine_needs(tmp_path: Path) -> None:
    package, own = Path(REPOSITORY) / "serving", tmp_path / "serving"
    (own / "engines/toy").mkdir(parents=True)
    for path in (*package.iterdir(), *(package / "engines").iterdir()):
        place = own / path.relative_to(package)
        if not place.exists():
            place.symlink_to(path)
    (own / "engines/toy/__init__.py").write_text(TOY)
    command = [sys.executable, "-c", QUESTION, str(tmp_path), str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words, unit_file, gate, key = json.loads(done.stdout)
    assert words[words.index("--entrypoint") + 1] == "toy"
    assert words[-7:] == [
        *("/models/qwen", "--host", "127.0.0.1", "--port", "8000"),
        *("--key-file", "/run/sparkrack/toy"),
    ]
    assert "/etc/sparkrack/serve/one.key:/run/sparkrack/toy:ro" in words
    metrics = {"counters": ["toy:steps"], "gauges": [], "requests": ["toy:running", "toy:waiting"]}
    assert json.loads(unit_file)["metrics"] == metrics
    assert "program:toy" in json.loads(gate)["container"]["looks"]
    assert key == "sk-1\n"


def test_each_name_of_an_engine_has_a_kind_with_its_own_options() -> None:
    assert {"vllm", "vllm-ray", "sglang"} <= ENGINES.keys()
    assert {engine.family for engine in ENGINES.values()} == FAMILIES.keys()


@pytest.mark.parametrize("name", ENGINES)
def test_no_engine_has_its_key_in_its_arguments(name: str) -> None:
    engine = ENGINES[name]
    assert not engine.table or "api-key" in engine.owned

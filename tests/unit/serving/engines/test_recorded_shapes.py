"""The shape of each model of the folder and its memory on each split, to the byte, as they were recorded once.

The other tests hold the figures against what owners and engines report, within a tolerance. These notice a change of a
formula that stays within it. UPDATE_DOCS=1 records them again: look at the difference then.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from serving.engines.memory_fit import Demand, Parallel, fit
from serving.engines.model_shape import ModelConfigError, ModelShape, parse, read

CONFIGS = Path(__file__).parent / "model_configs"
RECORDED = Path(__file__).with_name("recorded_shapes.json")
NAMES = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())
FORMATS: dict[str, dict[str, Any]] = {
    "gptq": {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}},
    "awq of 8 bits": {"quantization_config": {"quant_method": "awq", "bits": 8, "group_size": 64}},
    "fp8 in blocks": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
}
SPLITS = (
    Parallel(1, 1),
    Parallel(2, 1),
    Parallel(4, 1),
    Parallel(8, 1),
    Parallel(1, 3),
    Parallel(2, 2),
    Parallel(4, 1, expert=True),
)
DEMANDS = {
    "plain": Demand(),
    "bf16": Demand(context=65536, sequences=1, kv_format="bf16"),
    "nvfp4": Demand(kv_format="nvfp4", in_flight=8192, window_share=0.1, drafts=1),
}


def memory(shape: ModelShape) -> list[str]:
    found = []
    for name, demand in DEMANDS.items():
        for split in SPLITS:
            made = fit(shape, split, demand)
            parts = " ".join(
                f"{part:.6f}" for part in (made.weights, made.kv, made.state, made.total, made.token_bytes)
            )
            words = f"{name} {split}{' EP' if split.expert else ''}: {parts} {made.verdict} {made.context_left}"
            found.append(" | ".join((words, *made.blockers, *made.unknown.values(), made.reason)))
    return found


def line_of(shape: ModelShape, *names: str) -> str:
    """The fields of a shape in one line, all by default."""
    values = {name: getattr(shape, name) for name in names or [each.name for each in fields(shape)]}
    return json.dumps(values, default=dict, sort_keys=True)


def recorded() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in NAMES:
        shape = read(CONFIGS / name)
        found[name] = [line_of(shape), *memory(shape)]
        config = json.loads((CONFIGS / name / "config.json").read_text())
        for words, changes in FORMATS.items():
            made = parse({**config, **changes}, name=name)
            found[name].append(f"{words}: {line_of(made, 'formats', 'group', 'group_bits', 'bits', 'unknown')}")
    return found


def test_the_shape_and_the_memory_of_each_model_are_those_that_were_recorded() -> None:
    now = recorded()
    if os.environ.get("UPDATE_DOCS"):
        RECORDED.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    before = json.loads(RECORDED.read_text())
    assert now.keys() == before.keys()
    for name, shape in now.items():
        assert shape == before[name], name


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_missing_is_named_in_the_refusal(name: str) -> None:
    config = json.loads((CONFIGS / name / "config.json").read_text())
    shape = parse(config, name=name)
    if not shape.kinds:
        pytest.skip("of an unknown architecture only the layers are read")
    inner = next((config[key] for key in ("text_config", "llm_config", "language_config") if key in config), config)
    del inner["vocab_size"]
    config.pop("vocab_size", None)
    with pytest.raises(ModelConfigError, match=f"^{name}: vocab_size is missing or is not a number; "):
        parse(config, name=name)

"""The racks of examples/ as the lab runs them: what it changes, and the page of what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.model import load
from serving.options import served_units
from tests.lab.serve_examples import BEGIN, END, EXAMPLES, PAGE, RECORD, lab_text, page
from tests.unit.model.serving_racks import refusals


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_lab_changes_images_models_memory_overhead_and_nothing_else(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    text, changes = lab_text(example, tmp_path)
    assert refusals(text) == []
    original, file = tmp_path / "original.yaml", tmp_path / "rack.yaml"
    original.write_text(example.path.read_text())
    file.write_text(text)
    before, after = load(original), load(file)
    for part in ("access", "nodes", "switches", "fabric"):
        assert getattr(after, part) == getattr(before, part)
    for key, unit in served_units(before).items():
        same = {"image": unit.image, "memory": unit.memory, "overhead": unit.overhead}
        assert served_units(after)[key].model_copy(update=same) == unit
        for part in ("overhead",) if unit.kv else ("memory", "overhead"):
            assert any(line.startswith(f"serving.units.{key}.{part}") for line in changes)
    assert set(after.models) == set(before.models)
    assert all((tmp_path / model / "config.json").is_file() for model in after.models)
    assert example.unit in served_units(after)


def test_the_page_is_made_from_the_record() -> None:
    recorded = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert recorded == page(json.loads(RECORD.read_text())), "python -m tests.lab.serve_examples writes it"

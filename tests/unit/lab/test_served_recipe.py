"""The recipe of a virtual rack comes over whole, and its hub answers what a node asks for the model."""

from __future__ import annotations

import json
from pathlib import Path

from core.model import load
from lab.served_recipe import COMMIT, MODEL, RECIPE, hub_files
from lab.served_unit import IMAGE, UNIT
from serving.options import served_units
from sparkrack.serving.recipe import RecipeChoices, import_recipe
from tests.unit.model.serving_racks import machines


def test_the_recipe_comes_over_without_further_options(tmp_path: Path) -> None:
    found = import_recipe(RECIPE, RecipeChoices(name=UNIT, nodes=("n0", "n1")), None)
    (tmp_path / "rack.yaml").write_text(machines(2) + found.yaml())
    unit = served_units(load(tmp_path / "rack.yaml"))[UNIT]
    assert (unit.image, len(unit.ranks(("n0", "n1")))) == (IMAGE, 2)


def test_the_hub_lists_a_commit_and_has_each_file_below_it() -> None:
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    hub = hub_files(files)
    listed = json.loads(hub[f"api/models/{MODEL}/revision/main"])
    assert listed["sha"] == COMMIT
    assert {
        one["rfilename"]: hub[f"{MODEL}/resolve/{COMMIT}/{one['rfilename']}"] for one in listed["siblings"]
    } == files

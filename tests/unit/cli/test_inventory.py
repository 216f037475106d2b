"""What pyinfra shows of the inventory: everything, and no secret."""

from __future__ import annotations

import json

from tests.generated import REPOSITORY
from tests.unit.cli.runs import command


def test_the_inventory_can_be_shown_as_json() -> None:
    rack = REPOSITORY / "tests/cases/racks/valid/switch.yaml"
    ended = command("pyinfra", "inventory.py", "debug-inventory", "--json", RACK=str(rack), CRS812_PASSWORD="canary")
    assert ended.code == 0, ended.text
    assert "canary" not in ended.text
    assert "10.77.0.11" in json.dumps(json.loads(ended.stdout))

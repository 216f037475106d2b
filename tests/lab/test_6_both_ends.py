"""A leg is good only when both of its ends say so, and the cable is where rack.yaml says it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=4)

LEG = {"cage": "qsfp56-dd-1", "lane": 3}
IMPATIENT = """
from pyinfra.context import host

from switch.apply import apply

if "switches" in host.groups:
    apply(rack=host.data.rack, switch=host.data.switch, settle=8)
"""


@pytest.fixture
def swapped(rack: VirtualRack) -> Iterator[None]:
    """The cables of spark1 and spark2 in one another's place."""
    swap = {"op": "cable", "do": "swap", **LEG, "to": {"cage": "qsfp56-dd-1", "lane": 1}}
    rack.control(swap)
    yield
    rack.control(swap)


def test_a_swapped_cable_is_named_with_both_ends(rack: VirtualRack, swapped: None) -> None:
    seen = rack.verify("--limit", "crs812", "--limit", "spark1", "--limit", "spark2", "--only", "switch", check=False)
    assert seen.returncode == 2, seen.stdout
    assert "spark1 is on leg crs812/qsfp56-dd-1-3, where spark2 should be" in seen.stdout, seen.stdout
    assert "spark2 is on leg crs812/qsfp56-dd-1-1" in seen.stdout, seen.stdout


@pytest.fixture
def deaf(rack: VirtualRack) -> Iterator[None]:
    """A leg that the switch calls up, and its node does not."""
    rack.control({"op": "cable", "do": "deafen", **LEG})
    yield
    rack.control({"op": "cable", "do": "plug", **LEG})
    rack.deploy("-y", roles=("switch",))


def test_a_leg_that_only_the_switch_calls_up_takes_the_change_back(
    rack: VirtualRack, deaf: None, tmp_path: Path
) -> None:
    wrong = ("/interface/ethernet/set", "=.id=qsfp56-dd-1-5", "=fec-mode=auto")
    rack.inside("pyinfra", "inventory.py", "exec", "--limit", "switches", "--", *wrong)
    deploy = tmp_path / "impatient.py"
    deploy.write_text(IMPATIENT)
    failed = rack.deploy("-y", deploy=str(deploy), check=False)
    text = failed.stdout + failed.stderr
    assert failed.returncode == 1, text
    assert "spark2/enp1s0f1np1: sees no link, should see 100G" in text
    assert "looked again: the switch is as it was before the run" in text
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    (lane,) = [row for row in tables["/interface/ethernet"] if row["default-name"] == "qsfp56-dd-1-5"]
    assert lane["fec-mode"] == "auto"
    assert tables["/system/scheduler"] == []

"""Every split of every kind of cage, written to a switch by a whole transaction, from the split before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.hardware.cage_kinds import cage_kind
from core.hardware.crs812 import CRS812
from switch.target_state import DeclaredTarget
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER
from tests.emulator.transactions import RELEASES, Operator, on_releases
from tests.unit.switch.racks import UNCABLED, make_rack

KINDS = {cage: cage_kind(cage) for cage in CRS812.cages}
PLANS = max(len(kind.breakouts) for kind in KINDS.values())


def cages(plan: int) -> dict[str, dict[str, Any]]:
    """Every cage of the unit with the next split of its kind: the first of two cages in copper, the second optic."""
    return {
        cage: {
            "split": tuple(kind.breakouts)[plan % len(kind.breakouts)],
            "medium": ("copper", "optic")[(number + plan // len(kind.breakouts)) % 2],
        }
        for number, (cage, kind) in enumerate(KINDS.items())
    }


def test_the_plans_have_every_split_of_every_kind_in_copper_and_optic() -> None:
    planned = {
        (KINDS[cage].name, spec["split"], spec["medium"]) for plan in range(PLANS) for cage, spec in cages(plan).items()
    }
    assert planned == {
        (kind.name, split, medium)
        for kind in KINDS.values()
        for split in kind.breakouts
        for medium in ("copper", "optic")
    }


NUMBERS = [(number,) for number in range(PLANS)]


@pytest.mark.parametrize(("release", "number"), on_releases(NUMBERS, NUMBERS[: len(RELEASES)]))
def test_a_split_is_written_after_another_one_and_nothing_is_left_to_do(
    make_switch: MakeSwitch, tmp_path: Path, release: str, number: int
) -> None:
    emulator = make_switch(version=release, settle=0.0, cables=())
    operator = Operator(tmp_path, emulator)
    for step in (number, number + 1):
        goal = DeclaredTarget(
            *make_rack(
                tmp_path,
                UNCABLED,
                address="127.0.0.1",
                port=emulator.tls_port,
                tls={"sha256": emulator.fingerprint},
                user=USER,
                cages=cages(step % PLANS),
                l2mtu=9216,
            )
        )
        ended, _ = operator.run(goal)
        assert ended.done, (release, step, ended.text)
        assert goal.plan(operator.reading(goal)).changes == ()
    tables = emulator.state()["tables"]
    assert tables["/system/scheduler"] == tables["/system/script"] == []

"""FEC, and the breakouts that the manual does not list, as a run sets and checks them on an emulated switch with the
cables and modules that they are for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.hardware.cage_kinds import cage_kind, lane_interface
from core.routeros.reading import SwitchReading
from lab.routeros_emulator.config import CableTail, EmulatedCable
from switch.differences import switch_differences
from switch.executor import TransactionOutcome
from switch.leg_health import leg_problems
from switch.target_state import DeclaredTarget
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.transactions import Operator
from tests.unit.switch.racks import make_rack

SETTLE = 2.0


@dataclass(frozen=True)
class Plugged:
    """A cage with a cable whose peers run a FEC, and what rack.yaml declares of it."""

    cage: str
    split: str
    medium: str
    peer: str

    def cable(self, folder: Path) -> EmulatedCable:
        split = cage_kind(self.cage).breakouts[self.split]
        tails = (
            CableTail.model_validate(
                {
                    "lane": lane,
                    "lanes": split.lanes_per_leg,
                    "gbps": split.gbps,
                    "node": f"spark{number}",
                    "port": 1,
                    "fec": self.peer,
                    "state_file": folder / f"spark{number}.json",
                }
            )
            for number, lane in enumerate(split.first_lanes, start=1)
        )
        return EmulatedCable.model_validate({"cage": self.cage, "medium": self.medium, "tails": tuple(tails)})

    @property
    def legs(self) -> list[str]:
        return [lane_interface(self.cage, lane) for lane in cage_kind(self.cage).breakouts[self.split].first_lanes]

    def goal(self, folder: Path, emulator: Crs812Process, split: str | None = None, fec: str | None = None) -> Any:
        """The rack with a node on each leg of its cable, or none when the cage is declared with another split."""
        nodes: dict[str, str | None] = {"spark1": None}
        nodes |= {f"spark{n}": f"crs812/{leg}" for n, leg in enumerate(self.legs, start=1) if split is None}
        declared = {"split": split or self.split, "medium": self.medium, **({"fec": fec} if fec else {})}
        way: dict[str, Any] = {
            "address": "127.0.0.1",
            "port": emulator.tls_port,
            "tls": {"sha256": emulator.fingerprint},
            "user": USER,
        }
        return DeclaredTarget(*make_rack(folder, nodes, cages={self.cage: declared}, **way))


LR4 = Plugged("qsfp56-dd-1", "1x100G", "optic", "off")
SR4 = Plugged("qsfp56-dd-1", "1x100G", "optic", "fec91")
CR4 = Plugged("qsfp56-dd-2", "1x100G", "copper", "fec91")


def carry_out(folder: Path, switch: Crs812Process, goal: DeclaredTarget) -> TransactionOutcome:
    ended, _ = Operator(folder, switch).run(goal, settle=SETTLE)
    return ended


def look(folder: Path, switch: Crs812Process, goal: DeclaredTarget) -> tuple[SwitchReading, list[str], tuple[str, ...]]:
    """The switch, its differences in the words of rack.yaml, and the problems of its legs."""
    with Operator(folder, switch).line() as line:
        reading = goal.read(lambda sentence: line.talk(*sentence))
        todo = goal.plan(reading)
        problems = leg_problems(goal.rack, goal.switch, reading, todo, lambda sentence: line.talk(*sentence))
    lanes = [one.text for one in switch_differences(goal.switch, reading, todo) if goal_cage(goal) in one.text]
    return reading, lanes, problems


def goal_cage(goal: DeclaredTarget) -> str:
    return next(iter(goal.switch.cages))


@pytest.mark.parametrize(
    ("plugged", "fec", "written"),
    [
        (LR4, None, "auto"),
        (LR4, "off", "off"),
        (SR4, "fec91", "fec91"),
        (CR4, None, "fec91"),
        (Plugged("qsfp56-dd-1", "4x50G", "copper", "fec91"), None, "fec91"),
        (Plugged("qsfp56-dd-1", "4x50G", "copper", "fec74"), "fec74", "fec74"),
        (Plugged("qsfp56-dd-2", "2x40G", "optic", "off"), None, "auto"),
        (Plugged("qsfp56-1", "1x40G", "copper", "off"), "off", "off"),
    ],
)
def test_a_run_brings_the_legs_up(
    tmp_path: Path, make_switch: MakeSwitch, plugged: Plugged, fec: str | None, written: str
) -> None:
    switch = make_switch(cables=(plugged.cable(tmp_path),))
    goal = plugged.goal(tmp_path, switch, fec=fec)
    ended = carry_out(tmp_path, switch, goal)
    assert ended.done, ended
    assert {leg: switch.links()[leg] for leg in plugged.legs} == dict.fromkeys(plugged.legs, "link-ok")
    reading, lanes, problems = look(tmp_path, switch, goal)
    assert {reading.ethernet[leg]["fec-mode"] for leg in plugged.legs} == {written}
    assert (lanes, problems, goal.plan(reading).changes) == ([], (), ())


@pytest.mark.parametrize(("plugged", "fec", "runs"), [(LR4, "fec91", "fec91"), (SR4, None, "off"), (CR4, "off", "off")])
def test_different_fec_at_both_ends_gives_no_link_and_the_run_is_reverted(
    tmp_path: Path, make_switch: MakeSwitch, plugged: Plugged, fec: str | None, runs: str
) -> None:
    switch = make_switch(cables=(plugged.cable(tmp_path),))
    ended = carry_out(tmp_path, switch, plugged.goal(tmp_path, switch, fec=fec))
    assert not ended.done
    assert f"leg crs812/{plugged.legs[0]} (lanes 1-4, to spark1/1) is no-link, should be up at 100G" in ended.text
    # The reason, which a real switch does not report, as the emulator knows it after the same change by hand.
    with Operator(tmp_path, switch).open() as session:
        word = "100G-baseSR4-LR4" if plugged.medium == "optic" else "100G-baseCR4"
        (row,) = session.talk("/interface/ethernet/print", "=.proplist=.id", f"?default-name={plugged.legs[0]}")
        assert row
        words = ("=auto-negotiation=no", f"=speed={word}", f"=fec-mode={fec or 'auto'}")
        session.talk("/interface/ethernet/set", f"=.id={row['.id']}", *words)
    why = switch.state()["links"][plugged.legs[0]]["why"]
    assert why == f"the leg runs FEC {runs}, the peer {plugged.peer}"


def test_a_module_of_four_lanes_after_another_breakout(tmp_path: Path, make_switch: MakeSwitch) -> None:
    """Lanes 5 to 8 are disabled with 1x100G, enabled again with another breakout, and differences of both are named."""
    switch = make_switch(cables=(CR4.cable(tmp_path),))
    four, one = CR4.goal(tmp_path, switch, split="4x100G"), CR4.goal(tmp_path, switch)
    cage = "qsfp56-dd-2"

    def disabled() -> list[int]:
        rows = switch.state()["tables"]["/interface/ethernet"]
        by_name = {row["default-name"]: row for row in rows}
        return [lane for lane in range(1, 9) if by_name[f"{cage}-{lane}"]["disabled"] == "true"]

    assert carry_out(tmp_path, switch, four).done
    assert disabled() == []
    _, lanes, _ = look(tmp_path, switch, one)
    assert lanes[0] == f"cage {cage} is 4x100G copper, wanted 1x100G copper"
    assert f"lanes 5-8 of cage {cage}: enabled, wanted disabled (no leg of 1x100G takes it)" in lanes
    assert carry_out(tmp_path, switch, one).done
    assert (disabled(), switch.links()[f"{cage}-1"]) == ([5, 6, 7, 8], "link-ok")
    _, lanes, problems = look(tmp_path, switch, one)
    assert (lanes, problems) == ([], ())
    with Operator(tmp_path, switch).open() as session:
        (row,) = session.talk("/interface/ethernet/print", "=.proplist=.id", f"?default-name={cage}-1")
        session.talk("/interface/ethernet/set", f"=.id={row['.id']}", "=fec-mode=off")
    _, lanes, _ = look(tmp_path, switch, one)
    assert lanes == [f"leg crs812/{cage}-1: FEC is off, wanted fec91"]
    _, lanes, _ = look(tmp_path, switch, four)
    assert lanes[0] == f"cage {cage} is 1x100G copper, wanted 4x100G copper"
    assert carry_out(tmp_path, switch, four).done
    assert disabled() == []

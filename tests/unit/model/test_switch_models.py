"""The switch models: one data file each, selected by `switches.<name>.model`, and shown in the documentation."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from core.hardware import registry
from core.hardware.cage_kinds import KINDS, cage_kind, cage_of, lane_interface
from core.hardware.crs804 import CRS804
from core.hardware.crs812 import CRS812
from core.hardware.fec import allowed_fec, default_fec
from core.hardware.switch_model import SwitchModel
from tests import generated
from tests.unit.model.racks import CASES, VALID, changed, faults, loaded

DOCUMENT = "docs/reference/switch-models.md"
FOUR = (VALID / "crs804.yaml").read_text()

models = pytest.mark.parametrize("model", registry.MODELS, ids=lambda model: model.name)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("crs812", CRS812),
        ("CRS812", CRS812),
        ("CRS812-8DS-2DQ-2DDQ", CRS812),
        ("CRS812-8DS-2DQ-2DDQ-RM", CRS812),
        ("crs804", CRS804),
        ("CRS804-4DDQ", CRS804),
        ("CRS804-4DDQ-hRM", CRS804),
        ("crs804-4ddq-hrm", CRS804),
        ("CRS804-4DDQ-XX", None),
        ("CRS81", None),
        ("CRS326-24S+2Q+RM", None),
        ("", None),
    ],
)
def test_a_text_selects_a_model(text: str, model: SwitchModel | None) -> None:
    assert registry.find(text) is model


def test_a_text_that_selects_none_is_an_error_with_what_is_known() -> None:
    with pytest.raises(LookupError, match=r"crs805 is not a model that is known; known are crs812 \(CRS812-8DS"):
        registry.get("crs805")


@models
def test_a_model_agrees_with_itself(model: SwitchModel) -> None:
    assert registry.find(model.name) is registry.find(model.board) is registry.find(model.article) is model
    assert model.is_board(model.board)
    assert re.fullmatch(r"crs[0-9]+", model.name)
    for cage, kind in model.cages.items():
        assert cage_kind(cage) is kind is KINDS[kind.name]
    interfaces = [lane_interface(cage, lane) for cage, kind in model.cages.items() for lane in range(1, kind.lanes + 1)]
    assert len({*interfaces, *model.management_ports}) == len(interfaces) + len(model.management_ports)
    assert [cage_of(name) for name in model.management_ports] == [None] * len(model.management_ports)
    for cage, kind in model.cages.items():
        assert {cage_of(lane_interface(cage, lane)) for lane in range(1, kind.lanes + 1)} == {cage}


def test_the_names_of_models_are_distinct() -> None:
    assert len({text.lower() for model in registry.MODELS for text in (model.name, model.board)}) == 2 * len(
        registry.MODELS
    )


@pytest.mark.parametrize("name", ["qsfp56-dd-1", "qsfp56-1", "sfp56-1-1", "ether1", "bridge", "switch1-cpu", ""])
def test_what_is_not_a_lane_is_in_no_cage(name: str) -> None:
    assert cage_of(name) is None


def test_the_model_is_a_crs812_where_none_is_written() -> None:
    text = changed((VALID / "switch.yaml").read_text(), ("    model: CRS812-8DS-2DQ-2DDQ\n", ""))
    assert loaded(text).switches["crs812"].hardware is CRS812


def test_the_cages_of_a_rack_are_those_of_its_model() -> None:
    switch = loaded(FOUR).switches["crs804"]
    assert switch.hardware is CRS804
    assert set(switch.cages) == {"qsfp56-dd-1", "qsfp56-dd-4"}
    assert [str(leg) for leg, _ in loaded(FOUR).cabling.legs("crs804")] == [
        "crs804/qsfp56-dd-1-1",
        "crs804/qsfp56-dd-1-3",
        "crs804/qsfp56-dd-4-1",
        "crs804/qsfp56-dd-4-5",
    ]


def test_two_switches_of_two_models_are_judged_each_by_its_own() -> None:
    text = (VALID / "switch.yaml").read_text()
    second = """\
  other:
    address: 10.77.0.3
    tls: {sha256: "1111111111111111111111111111111111111111111111111111111111111111"}
    user: sparkrack
    password: {env: OTHER_PASSWORD}
    model: crs804
    cages: {qsfp56-dd-3: {split: 4x100G}, CAGE: {split: 1x50G}}

fabric:
"""
    both = changed(text, ("\nfabric:\n", second))
    assert faults(both.replace(", CAGE: {split: 1x50G}", "")) == []
    (fault,) = faults(both.replace("CAGE", "sfp56-1"))
    assert "switches.other.cages.sfp56-1: a CRS804 has no such cage" in fault


def test_a_switch_is_judged_by_the_limit_of_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(CRS804, max_l2mtu=9216)
    monkeypatch.setattr(registry, "MODELS", (CRS812, small))
    assert faults(changed(FOUR, ("model: crs804\n", "model: crs804\n    l2mtu: 9216\n"))) == []
    assert faults(changed(FOUR, ("model: crs804\n", "model: crs804\n    l2mtu: 9217\n"))) == [
        "21: switches.crs804.l2mtu: 9217 is too large for a CRS804; write at most 9216"
    ]


def shown(model: SwitchModel) -> str:
    """The facts of a model as the documentation shows them."""
    facts = {
        "model": model.name,
        "board": model.board,
        "article": model.article,
        "switch chip": f"{model.chip}, driven by the package {model.driver_package} ({model.architecture})",
        "RJ45 ports": ", ".join(model.management_ports),
        "largest l2mtu": f"{model.max_l2mtu} bytes",
    }
    for kind in model.kinds:
        cages = [cage for cage, of in model.cages.items() if of is kind]
        lanes = f"{kind.lanes} lane{'s' if kind.lanes > 1 else ''}"
        facts |= {f"{cages[0]} to {cages[-1]}": f"{lanes}: {', '.join(kind.breakouts)}"}
    width = max(map(len, facts)) + 2
    return "".join(f"{name:<{width}}{text}\n" for name, text in facts.items())


@models
def test_the_documentation_shows_the_model(model: SwitchModel) -> None:
    generated.check(DOCUMENT, model.name, shown(model))


def test_the_documentation_shows_every_model_and_no_other() -> None:
    text = (generated.REPOSITORY / DOCUMENT).read_text()
    assert re.findall(r"<!-- generated: (\S+) -->", text) == [model.name for model in registry.MODELS]


@models
def test_what_is_unproven_of_a_model_is_listed(model: SwitchModel) -> None:
    listed = (generated.REPOSITORY / "docs/unproven.md").read_text()
    absent = [fact for fact in model.unproven if f"| {model.title}: {fact.partition(': ')[0]} |" not in listed]
    assert absent == []


FEC_ROWS = {
    "400G, 200G, 100G on two lanes, 50G on one lane": [(400, 8), (200, 4), (100, 2), (50, 1)],
    "100G on four lanes": [(100, 4)],
    "50G on two lanes": [(50, 2)],
    "25G": [(25, 1)],
    "40G": [(40, 4)],
    "10G, 1G": [(10, 1), (1, 1)],
}


def test_the_documentation_shows_the_fec_of_every_leg() -> None:
    text = (generated.REPOSITORY / DOCUMENT).read_text()
    table = {row[0]: row[1:] for row in re.findall(r"^\| (.+) \| (.+`) \| `(\w+)` \| `(\w+)` \|$", text, re.MULTILINE)}
    assert list(table) == list(FEC_ROWS)
    splits = {(split.gbps, split.lanes_per_leg): split for kind in KINDS.values() for split in kind.breakouts.values()}
    assert sorted(splits) == sorted(shape for shapes in FEC_ROWS.values() for shape in shapes)
    for name, shapes in FEC_ROWS.items():
        for shape in shapes:
            split = splits[shape]
            values = ", ".join(f"`{mode}`" for mode in allowed_fec(split))
            assert (values, default_fec(split, "copper"), default_fec(split, "optic")) == table[name]


def test_nodes_on_two_switches_are_taken_when_the_owner_keeps_the_cable_and_no_vlan_is_on_it() -> None:
    two = (CASES / "two-switches.yaml").read_text()
    (fault,) = faults(two)
    assert "needs a cable between the switches, which cannot be declared" in fault
    kept = changed(two, ("fabric:\n", "fabric:\n  switch_links: by-hand\n"))
    assert faults(kept) == []
    (fault,) = faults(changed(kept, ("fabric:\n", "fabric:\n  vlans: [1100, 1101]\n")))
    assert "fabric.vlans: would be taken off the cable between the switches" in fault

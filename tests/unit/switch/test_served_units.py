"""No change of a switch takes a link down below a unit that runs, or of which that is unknown."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.model import Rack
from core.routeros.change_plan import ChangeBatch, ChangePlan
from core.routeros.diff import FieldChange, RowChange
from core.routeros.menus import BRIDGE, BRIDGE_PORT, ETHERNET, IDENTITY, Menu
from serving import running_engines as running_units
from sparkrack.cli.main import sparkrack
from switch.served_units import nodes_behind, unit_refusals
from tests.unit.model import racks
from tests.unit.model.serving_racks import ONE_UNIT, loaded, machines, text, unit
from tests.unit.switch.in_memory_switch import Device
from tests.unit.switch.rows import factory, reading
from tests.unit.switch.test_restore_lock import BACKUP, Workdir

QWEN = "/sparkrack.slice/sparkrack-qwen.slice\n/system.slice/sparkrack-serve-qwen.service\n"
ALONE = "/system.slice/sparkrack-serve-alone.service\n"
FOREIGN = "/sparkrack.slice/sparkrack-other.slice\n"
COORDINATOR = "/system.slice/sparkrack-serve-qwen-coordinator.service\n"


def rack() -> Rack:
    return loaded(text({"qwen": unit(), "alone": unit(nodes=["n2"], parallel={})}, machines(3)))


def refused(
    answers: dict[str, str | None], nodes: Iterable[str] = ("n0", "n1", "n2"), of: Rack | None = None
) -> list[str]:
    found = of or rack()
    return unit_refusals(found, next(iter(found.switches.values())), nodes, lambda node, _: answers.get(node, ""))


def plan(row: str, field: str, menu: Menu = ETHERNET, **more: bool) -> ChangePlan:
    """A change of a row that is there."""
    change = RowChange(menu, (row,), "*1", (FieldChange(field, "1", "2"),), before={"name": row}, **more)
    return ChangePlan((ChangeBatch("a batch", "an effect", (change,)),))


def behind(todo: ChangePlan) -> tuple[str, ...]:
    found = rack()
    return nodes_behind(found, next(iter(found.switches.values())), reading(factory()), todo)


def test_which_nodes_are_behind_a_change() -> None:
    found = rack()
    (switch,) = found.switches.values()
    legs = [(leg, port.node) for leg, port in found.cabling.legs(switch.name)]
    first, node = legs[0]
    cage = tuple(dict.fromkeys(node for leg, node in legs if leg.cage == first.cage))
    everyone = ("n0", "n1", "n2")
    # Any lane restarts its whole cage, also one that is not a leg of its own; a change of l2mtu restarts all ports.
    assert behind(plan(first.interface, "speed")) == cage
    assert behind(plan(f"{first.cage}-8", "disabled")) == cage
    assert behind(plan("sfp56-9", "l2mtu")) == everyone
    assert behind(plan(first.interface, "pvid", BRIDGE_PORT)) == (node,)
    assert behind(plan(first.interface, "pvid", BRIDGE_PORT, removes=True)) == (node,)
    assert behind(plan("bridge", "disabled", BRIDGE)) == behind(plan("bridge", "mtu", BRIDGE, removes=True)) == everyone
    for harmless in (
        plan("sfp56-9", "speed"),
        plan("sfp56-9", "pvid", BRIDGE_PORT),
        plan("bridge", "vlan-filtering", BRIDGE),
        plan("", "name", IDENTITY),
        ChangePlan(()),
    ):
        assert behind(harmless) == ()


def test_a_leg_that_is_added_to_a_bridge_passed_nothing_before() -> None:
    (leg, _), *_ = rack().cabling.legs(next(iter(rack().switches)))
    change = RowChange(BRIDGE_PORT, (leg.interface,), None, (FieldChange("pvid", None, "2"),))
    assert behind(ChangePlan((ChangeBatch("a batch", "an effect", (change,)),))) == ()


def test_a_unit_that_runs_is_named_once_with_what_stops_it() -> None:
    (switch,) = rack().switches
    assert refused({"n0": QWEN, "n1": QWEN + COORDINATOR}) == [
        f"unit qwen (n0, n1) runs, and n0, n1 would be cut off from {switch}; run `sparkrack serve stop qwen` first"
    ]
    assert refused({"n0": QWEN, "n1": QWEN}, nodes=["n1"])[0].startswith("unit qwen (n0, n1) runs, and n1 would be")


def test_what_uses_no_link_is_no_reason() -> None:
    assert refused({"n0": COORDINATOR, "n2": ALONE}) == []


def test_a_unit_that_rack_yaml_does_not_declare_is_named() -> None:
    (line,) = refused({"n1": FOREIGN})
    assert "unit other, which " in line
    assert "serve_coordinator.py /etc/sparkrack/serve/other.json down` on its head first" in line


@pytest.mark.parametrize(
    ("answer", "why"), [(None, "it does not answer"), ("sh: cat\x1b[2J\n", "running-units: unexpected")]
)
def test_a_node_of_which_it_is_unknown_is_refused(answer: str | None, why: str) -> None:
    (line,) = refused({"n1": answer})
    assert line.startswith(f"whether a unit runs on n1 is unknown: {why}")
    assert line.endswith("pass --no-nodes, which asks no node")
    assert line.isprintable()


def test_a_rack_without_units_asks_no_node() -> None:
    assert refused({"n0": None}, of=racks.loaded(racks.SWITCH)) == []


# `sparkrack switch restore`: the switch is one in memory, the nodes are shells of this machine


class Served(Workdir):
    """The backup has another speed of a lane. What a node answers is in the file of its name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
        super().__init__(folder, monkeypatch, device)
        rack = folder / "rack.yaml"
        rack.write_text(rack.read_text() + ONE_UNIT)
        lane = next(row for row in device.tables["/interface/ethernet"] if row["name"] == "qsfp56-dd-1-1")
        lane["fec-mode"] = "fec91" if lane["fec-mode"] != "fec91" else "fec74"
        self.spoilt = copy.deepcopy(device.tables)
        for name in ("spark1", "spark2"):
            (folder / name).touch()
        ssh = (folder / "desk/ssh").read_text()
        (folder / "desk/ssh").write_text(ssh.replace('[ "$3" = spark1 ]', 'export WHO="$3"; [ ! -e "$NODE/$3.off" ]'))
        monkeypatch.setattr(running_units, "PROBE", 'cat "$NODE/$WHO"')

    def restore(self, *words: str) -> Result:
        rack = f"{self.head.folder}/rack.yaml"
        return CliRunner().invoke(sparkrack, ["switch", "restore", BACKUP, "-y", "--no-wait", "--rack", rack, *words])

    def runs(self, node: str) -> None:
        (self.head.folder / node).write_text("/system.slice/sparkrack-serve-one.service\n")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> Served:
    return Served(tmp_path, monkeypatch, device)


def _silence_node(served: Served) -> None:
    (served.head.folder / "spark2.off").touch()


REFUSALS: dict[str, tuple[Callable[[Served], object], str]] = {
    "runs": (
        lambda served: served.runs("spark2"),
        "unit one (spark1, spark2) runs, and spark2 would be cut off from crs812",
    ),
    "silent": (_silence_node, "whether a unit runs on spark2 is unknown: it does not answer"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_restore_below_a_unit_is_refused(served: Served, name: str) -> None:
    before, reason = REFUSALS[name]
    before(served)
    done = served.restore()
    assert (done.exit_code, served.restored) == (1, False), done.output
    assert f"Error: {reason}" in done.output
    assert "nothing was changed" in done.output
    assert served.device.tables == served.spoilt
    assert not served.head.lock.exists()
    done = served.restore("--no-nodes")
    assert (done.exit_code, served.restored) == (0, True), done.output


def test_a_restore_beside_units_at_rest_is_done(served: Served) -> None:
    done = served.restore()
    assert (done.exit_code, served.restored) == (0, True), done.output

"""Several units on a node, and units of one slot: what is refused at load, their ports, and the ceiling of each."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from core.model import Rack
from core.model.role import reserved_gib
from roles.memory.options import MemoryOptions
from roles.rdma.options import socket_addresses
from roles.watch.scrape import watched_units
from serving import desired, unit_ports
from serving.launch import rank_argv
from serving.options import served_units
from serving.shared_nodes import container_ceiling, node_sums, shared_node_notes
from tests.unit.model.serving_racks import SGLANG, loaded, machines, record, refusals, text, unit
from tests.unit.roles.serving_units import PINS
from tests.unit.roles.serving_units import RECORDS as LOCKED

BOTH = {"nodes": ["n0", "n1"], "parallel": {"tensor": 2}}
RECORDS = {"qwen": record("Qwen3-235B-A22B", 124 * 10**9)}


def small(**keys: Any) -> dict[str, Any]:
    """A unit of one node that takes 0.4 of it."""
    return unit(**{"nodes": ["n0"], "parallel": None, "memory": 0.4, **keys})


def on(port: int, **keys: Any) -> dict[str, Any]:
    return small(api={"port": port}, **keys)


@pytest.mark.parametrize(
    "units",
    [
        {"one": on(8000), "two": on(8001)},
        {"one": on(8000, **BOTH), "two": on(8001, **BOTH)},
        {"one": on(8000, memory=0.6), "two": on(8001, nodes=["n1"], memory=0.6)},
        {"one": on(8000, memory=0.8, slot="main", state="up"), "two": on(8000, memory=0.8, slot="main", state="down")},
        {"one": on(8000, memory=0.8, slot="main", state="down"), "two": on(8000, slot="main", state="down")},
        {"one": on(8000, memory=0.8), "two": on(8000, memory=0.8, state="down")},
        {"one": on(8000, **BOTH), "two": on(8000, nodes=["n1", "n0"], parallel={"tensor": 2})},
    ],
)
def test_units_whose_shares_add_up_or_that_are_alternatives_are_accepted(units: dict[str, Any]) -> None:
    assert refusals(text(units)) == []


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (
            {"one": on(8000, memory=0.5), "two": on(8001, memory=0.41)},
            (
                "two.memory @ memory: the units that can be up on n0 take 110.7 GiB together (one 60.8, two 49.9), "
                "and a node gives at most 109.5; write less, other nodes, state: down at one of them, or one slot for"
                " units that are alternatives"
            ),
        ),
        (
            {
                "one": on(8000, slot="main", state="up", memory=0.3),
                "two": on(8000, slot="main", state="down", memory=0.6),
                "three": on(8001),
            },
            (
                "three.memory @ memory: the units that can be up on n0 take 121.7 GiB together (two 73.0, three "
                "48.7), and a node gives at most 109.5; write less, other nodes, state: down at one of them, or one "
                "slot for units that are alternatives"
            ),
        ),
        (
            {"one": on(8000), "two": on(8001, memory=None, kv="60G")},
            (
                "two.kv @ kv: the units that can be up on n0 take 116.7 GiB together (one 48.7, two 68.0), and a node"
                " gives at most 109.5; write less, other nodes, state: down at one of them, or one slot for units "
                "that are alternatives"
            ),
        ),
        (
            {"one": on(8000), "two": on(8000)},
            (
                "two.api.port @ port: 8000 is the port of unit one on n0 as well, and both can be up; write another, "
                "like 8001"
            ),
        ),
        (
            {"one": on(8000), "two": on(29401)},
            "two.api.port @ port: 29401 is a port of unit two on n0, that of its coordinator; write another, like 8001",
        ),
        (
            {"one": on(29521), "two": on(8000)},
            (
                "one.api.port @ port: 29521 is a port of unit two on n0, where its ranks find each other; write "
                "another, like 8001"
            ),
        ),
        (
            {"one": on(8000, slot="main", state="up"), "two": on(8000, slot="main", state="up")},
            (
                "two.state @ state: unit one of slot main is to be up as well, and of one slot one unit is up at a "
                "time; write state: down at one of them"
            ),
        ),
        (
            {"one": on(8000, slot="main")},
            (
                "one.slot @ slot: the unit does not say whether it is the one of its slot that is up; write state: up"
                " or state: down, which `sparkrack serve use` changes"
            ),
        ),
        (
            {"one": on(8000, engine="vllm-ray", **BOTH), "two": on(8001, engine="vllm-ray", **BOTH)},
            (
                "two.engine @ engine: unit one uses Ray on n0 as well, both can be up, and two of them use the same "
                "ports there (6379, 10002 to 19999); write engine: vllm, other nodes, or one slot for both"
            ),
        ),
    ],
)
def test_units_that_cannot_run_together_are_refused(units: dict[str, Any], expected: str) -> None:
    assert refusals(text(units)) == [f"serving.units.{expected}"]


def test_the_sum_of_a_node_leaves_what_the_host_needs() -> None:
    units = {"one": on(8000, memory=0.45), "two": on(8001, memory=0.45)}
    assert refusals(text(units)) == []
    found = refusals(text(units, memory={"floor": "9G"}))
    assert [line for line in found if "together" in line and "at most 107.2" in line], found


def test_the_sum_of_a_unit_with_kv_has_its_weights_once_they_are_known() -> None:
    units = {"one": on(8000, memory=0.3, **BOTH), "two": on(8001, **{**BOTH, "memory": None, "kv": "20G"})}
    assert refusals(text(units)) == []
    found = refusals(text(units), RECORDS)
    assert [line for line in found if line.startswith("serving.units.two.kv") and "together" in line], found


@pytest.mark.parametrize("section", ["gateway", "watch", ""])
def test_units_of_a_slot_share_a_port_only_where_nothing_tells_them_apart_by_it(section: str) -> None:
    units = {"one": on(8000, slot="main", state="up"), "two": on(8000, slot="main", state="down")}
    gateway = {"node": "n0", "keys": {"alice": {"env": "ALICE"}}}
    sections: dict[str, dict[str, Any]] = {
        "gateway": {"serving": {"units": units, "gateway": gateway}},
        "watch": {"watch": {"server": "n1"}},
        "": {},
    }
    found = [line for line in refusals(text(units, **sections[section])) if "tell units of a slot apart" in line]
    assert [line.partition(" @ ")[0] for line in found] == (["serving.units.two.api.port"] if section else [])


def test_the_port_of_a_second_coordinator_is_free() -> None:
    found = refusals(text({"one": on(8000), "two": on(8001)}, port=29500))
    assert found == [
        (
            "serving.port @ port: the coordinator of unit two, one port after that of the unit before it on n0, would "
            "use 29501, where the ranks of unit one find each other; write another, like 29400"
        )
    ]


def test_the_ranks_of_a_second_unit_take_no_port_of_the_coordinators_or_the_gateway() -> None:
    """The first unit's coordinator has serving.port itself, and the second one's ranks meet at 29521."""
    units = {"one": on(8000, memory=0.3, **BOTH), "two": on(8001, memory=0.3, **BOTH)}
    (found,) = refusals(text(units, port=29521))
    assert "unit one" in found
    assert "29521, where the ranks of unit two find each other" in found
    gateway = {"node": "n0", "port": 29521, "keys": {"alice": {"env": "ALICE"}}}
    for name, one in units.items():
        one["args"] = {"served-model-name": name}
        one["api"] = {**one["api"], "listen": "management"}
    (found,) = refusals(text({}, serving={"units": units, "gateway": gateway}))
    assert "29521 is already where the ranks meet of unit two" in found


def test_the_watch_scrapes_each_unit_of_a_slot_so_that_serve_use_changes_no_file_of_it() -> None:
    states = ("up", "down")
    found = []
    for first, second in (states, states[::-1]):
        units = {
            "one": on(8000, slot="main", state=first),
            "two": on(8001, slot="main", state=second),
        }
        for one in units.values():
            one["api"] = {**one["api"], "listen": "management"}
        rack = loaded(text(units, watch={"server": "n1"}))
        found.append([unit.name for unit in watched_units(rack)])
    assert found == [["one", "two"]] * 2


def test_a_unit_of_sglang_beside_another_one_is_warned_of() -> None:
    sglang = {"engine": "sglang", "version": "0.5.12", "image": SGLANG}
    rack = rack_of({"one": on(8000), "two": on(8001, **sglang)})
    (note,) = shared_node_notes(rack)
    assert note.what.endswith("which is less while unit one is up")
    assert list(shared_node_notes(rack_of({"one": on(8000, state="down"), "two": on(8001, **sglang)}))) == []


def test_serve_check_has_the_sum_of_each_shared_node() -> None:
    rack = rack_of({"one": on(8000, **BOTH), "two": on(8001, memory=0.2), "three": on(8002, nodes=["n1"], slot="s")})
    sums = node_sums(
        served_units(rack), rack.nodes, {}, rack.options(MemoryOptions), reserved_gib(lambda key: getattr(rack, key))
    )
    assert {one.node: sorted(one.parts) for one in sums} == {"n0": ["one", "two"], "n1": ["one", "three"]}


def rack_of(units: dict[str, Any]) -> Rack:
    for declared in units.values():
        if "slot" in declared:
            declared.setdefault("state", "up")
    return loaded(text(units, machines(2)))


def ports(rack: Rack) -> dict[str, tuple[int, int, int]]:
    units = served_units(rack)
    return {
        name: (
            unit_ports.coordinator_port(29400, units, rack.nodes, one),
            unit_ports.master_port(units, rack.nodes, one),
            unit_ports.meeting_port(units, rack.nodes, one),
        )
        for name, one in units.items()
    }


def test_each_unit_has_ports_of_its_own_and_keeps_them_when_another_is_written_below() -> None:
    one, two, far = on(8000, **BOTH), on(8001, **BOTH), on(8000, nodes=["n1"], memory=0.1)
    before = ports(rack_of({"one": one}))
    assert before == {"one": (29400, 29501, 18664)}
    after = ports(rack_of({"one": one, "far": far, "two": two}))
    assert after["one"] == before["one"]
    assert after["two"] == (29401, 29521, 18666)
    assert after["far"] == (29400, 29501, 18665)


def test_a_unit_on_other_nodes_changes_no_port_of_a_unit_wherever_it_is_written() -> None:
    """A unit that shares a node with it is counted, and one that shares none is not."""
    four = {"nodes": ["n2", "n3"], "parallel": {"tensor": 2}}
    middle = {"nodes": ["n1", "n2"], "parallel": {"tensor": 2}, "memory": 0.1}
    units = {"new": on(8000, **four), "one": on(8000, **BOTH)}
    alone, both = (ports(loaded(text(one, machines(4)))) for one in ({"one": units["one"]}, units))
    assert both["one"] == alone["one"] == (29400, 29501, 18664)
    versions = set()
    for declared in ({"one": units["one"]}, units):
        rack = loaded(text(declared, machines(4)))
        versions.add(desired.declared_version(desired.locked_unit(rack, served_units(rack)["one"], PINS, LOCKED)))
    assert len(versions) == 1, "the unit would have to be recreated"
    chain = ports(loaded(text({**units, "between": on(8001, **middle)}, machines(4))))
    assert [chain[name][2] for name in ("new", "one", "between")] == [18664, 18664, 18665]


def test_units_that_share_a_node_meet_at_different_ports() -> None:
    names = [f"n{number}" for number in range(8)]
    chosen = random.Random(7)  # noqa: S311 - no secret
    for _ in range(20):
        units = {
            f"u{number}": on(8000 + number, nodes=sorted(chosen.sample(names, 2)), memory=0.05, parallel={"tensor": 2})
            for number in range(6)
        }
        rack = loaded(text(units, machines(8)))
        made = ports(rack)
        for one, other in itertools.combinations(served_units(rack).values(), 2):
            if set(one.ranks(rack.nodes)) & set(other.ranks(rack.nodes)):
                assert made[one.name][2] != made[other.name][2]


@pytest.mark.parametrize("keys", [{}, {"engine": "sglang", "version": "0.5.12", "image": SGLANG}])
def test_the_ranks_of_the_second_unit_meet_at_a_port_of_their_own(keys: dict[str, Any]) -> None:
    rack = rack_of({"one": on(8000, **BOTH), "two": on(8001, **BOTH, **keys)})
    addresses = socket_addresses(rack)
    first, second = (" ".join(rank_argv(rack, one, 1, addresses)) for one in served_units(rack).values())
    assert "29501" in first
    assert "29521" in second
    assert "29501" not in second


def test_a_container_may_have_what_its_unit_takes_and_never_more_than_all_containers() -> None:
    rack = rack_of({"one": on(8000, memory=0.4, shm="8G"), "two": on(8001, memory=0.5, shm="64G")})
    one, two = served_units(rack).values()
    assert container_ceiling(rack, one) == "58037M"
    assert container_ceiling(rack, two) == "100G"

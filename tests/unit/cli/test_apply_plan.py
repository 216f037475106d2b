"""`sparkrack apply FILE`: what `sparkrack plan --out` kept is done, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from tests.unit.cli.rack_folder import NAMES, World, many
from tests.unit.cli.runs import Ended
from tests.unit.model.racks import changed

Edit = Callable[[World, dict[str, Any]], None]


def _other_rack(world: World, _: dict[str, Any]) -> None:
    rack = world.folder / "rack.yaml"
    rack.write_text(changed(rack.read_text(), ("rack: ring", "rack: circle")))


def _one_more_change(world: World, _: dict[str, Any]) -> None:
    world.put("spark3", "memory", "old")


def _one_less(world: World, _: dict[str, Any]) -> None:
    world.put("spark2", "rdma", "new")


def _another_old(world: World, _: dict[str, Any]) -> None:
    world.put("spark2", "rdma", "older\x1b[2J")


def _take_node_away(world: World, _: dict[str, Any]) -> None:
    (world.folder / "world.json").write_text('{"spark2": {"away": true}}')


def _refuse_node(world: World, _: dict[str, Any]) -> None:
    (world.folder / "world.json").write_text('{"spark2": {"refused": "it is in the way"}}')


def _change_diff(_: World, plan: dict[str, Any]) -> None:
    reported = plan["hosts"][0]["operations"][0]["events"][1]
    assert reported["kind"] == "file"
    reported["diff"] = ["-something else"]


def _reverse_operations(_: World, plan: dict[str, Any]) -> None:
    plan["hosts"][0]["operations"].reverse()


def _set_roles(roles: list[str]) -> Edit:
    return lambda _, plan: plan.update(roles=roles)


def _keep_machines(names: list[str]) -> Edit:
    def edit(_: World, plan: dict[str, Any]) -> None:
        plan["hosts"] = [machine for machine in plan["hosts"] if machine["name"] in names]

    return edit


def _set_schema(name: str) -> Edit:
    def edit(_: World, plan: dict[str, Any]) -> None:
        plan["schema"] = name

    return edit


def _change_nothing(*_: object) -> None:
    pass


MOVED = "UTC) things have moved; nothing was changed\n"
REFUSED: dict[str, tuple[Edit, list[str]]] = {
    "more": (
        _one_more_change,
        [
            f"{MOVED}  no longer: spark3: in sync\n  now: spark3: memory: memory.level: old -> new\n",
            "  now: spark3: memory: modify /etc/memory.conf\n  now: spark3: changes\n",
        ],
    ),
    "less": (
        _one_less,
        [
            f"{MOVED}  no longer: spark2: rdma: rdma.level: old -> new\n",
            "  no longer: spark2: rdma: modify /etc/rdma.conf\n",
        ],
    ),
    "another value": (_another_old, ["  now: spark2: rdma: rdma.level: older\\x1b[2J -> new\n"]),
    "another diff": (
        _change_diff,
        [
            f"{MOVED}  no longer: spark1: memory: modify /etc/memory.conf\n",
            "  now: spark1: memory: modify /etc/memory.conf\n",
        ],
    ),
    "another order": (_reverse_operations, [f"{MOVED}  the order of the steps\n"]),
    "away": (_take_node_away, ["  no longer: spark2: changes\n", "  now: spark2: unreachable\n"]),
    "refused": (_refuse_node, ["  now: spark2: memory: it is in the way\n"]),
    "fewer roles": (_set_roles(["preflight", "rdma"]), ["  no longer: spark1: memory: memory.level: old -> new\n"]),
    "no machine": (_keep_machines([]), [MOVED]),
    "another rack": (
        _other_rack,
        ["the plan is about rack ring (", "rack.yaml is rack circle; pass --rack; nothing was"],
    ),
    "another schema": (_set_schema("sparkrack.plan/3"), ["is not a plan that `sparkrack plan --out` has kept"]),
    "no such role": (_set_roles(["preflight", "nobody"]), ["is not a plan that `sparkrack plan --out` has kept"]),
    "without the gates": (_set_roles(["rdma"]), ["is not a plan that `sparkrack plan --out` has kept"]),
}
TEXTS = {
    "empty": "",
    "garbage": "\x00%%",
    "other": "{}",
    "drift": '{"schema": "sparkrack.drift/1"}',
    "deep": "[" * 9999,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[World, Ended]]:
    top = tmp_path_factory.mktemp("plan")
    names = [*REFUSED, *TEXTS, "same", "same json", "one machine", "and machines", "and roles"]
    worlds = {name: World(top / name.replace(" ", "-"), new=("spark3",)) for name in names}
    kept = {name: world.folder / "kept.plan" for name, world in worlds.items()}
    planned = many([{"folder": worlds["same"].folder, "words": ["plan", "--out", kept["same"]]}])
    assert planned[0].code == 2, planned
    plan = kept["same"].read_text()
    asked = []
    for name, world in worlds.items():
        about = json.loads(plan)
        edits = {name: edit for name, (edit, _) in REFUSED.items()} | {"one machine": _keep_machines(["spark1"])}
        edits.get(name, _change_nothing)(world, about)
        kept[name].write_text(TEXTS[name] if name in TEXTS else json.dumps(about))
        more = {"same json": ["--json"], "and machines": ["--limit", "spark1"], "and roles": ["--only", "rdma"]}
        asked.append({"folder": world.folder, "words": ["apply", kept[name], *more.get(name, [])]})
    return {name: (worlds[name], ended) for name, ended in zip(names, many(asked), strict=True)}


def test_the_same_world_goes_without_asking(runs: dict[str, tuple[World, Ended]]) -> None:
    for name in ("same", "same json"):
        world, ended = runs[name]
        assert ended.code == 0, ended.text
        assert all(world.things(one) == ["new", "new"] for one in NAMES)
        assert "memory.level" not in ended.text, "the plan was seen when it was kept"
    assert json.loads(runs["same json"][1].stdout)["result"] == "done"


def test_a_plan_of_one_machine_is_about_that_alone(runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs["one machine"]
    assert ended.code == 0, ended.text
    assert {line.split()[0] for line in world.sent} == {"spark1"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_world_that_has_moved_is_refused(name: str, runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs[name]
    assert ended.code == 1
    for text in REFUSED[name][1]:
        assert text in ended.stderr, ended.stderr
    assert not {sign for sign in ended.text if not sign.isprintable()} - {"\n"}
    assert (world.sent, world.journals, world.lock.exists()) == ([], [], False)
    assert "Traceback" not in ended.text


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_not_a_plan_is_refused(name: str, runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs[name]
    kept = world.folder / "kept.plan"
    assert (ended.code, ended.stderr) == (1, f"Error: {kept}: is not a plan that `sparkrack plan --out` has kept\n")
    assert world.connected == []


@pytest.mark.parametrize("name", ["and machines", "and roles"])
def test_a_plan_says_which_machines_and_roles(name: str, runs: dict[str, tuple[World, Ended]]) -> None:
    world, ended = runs[name]
    assert ended.code == 1
    assert "PLAN names the machines and roles" in ended.stderr
    assert world.connected == []


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    ended = CliRunner().invoke(sparkrack, ["apply", str(tmp_path / "no.plan")])
    assert ended.exit_code == 1
    assert "no.plan' does not exist" in ended.stderr

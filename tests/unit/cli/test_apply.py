"""`sparkrack apply` where nothing is in the way: what it does, says and gives back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.util.event import EventKind
from sparkrack.maintenance.apply_run import silences_of_plan
from tests.unit.cli import rack_folder
from tests.unit.cli.apply_cases import Runs, last
from tests.unit.cli.rack_folder import CANARY, NAMES, World
from tests.unit.cli.test_reboot import SSH
from tests.unit.drift.plans import machine, plan
from tests.unit.model import serving_racks
from tests.unit.model.racks import loaded
from tests.unit.roles.watch_tools import AMTOOL, silenced


def test_everything_is_done(applied: Runs) -> None:
    world, ended = applied["all"]
    assert ended.code == 0, ended.text
    assert all(world.things(name) == ["new", "new"] for name in NAMES)
    lines = ended.stdout.splitlines()
    assert "3 hosts, 12 changes, 0 unknown" in lines
    done = [line.partition(": changed, ")[0] for line in lines if ": changed, " in line]
    assert done[0] == "[1/2] spark1: memory: Turn it off", "the canary"
    assert sorted(done[1:3]) == [f"[1/2] {name}: memory: Turn it off" for name in NAMES[1:]]
    assert sorted(done[3:]) == [f"[2/2] {name}: rdma: Give it to users" for name in NAMES]
    assert lines[-4:-1] == [f"{name}: 2 operations changed it" for name in NAMES]
    assert lines[-1] == f"done; journal: {world.journals[0]}"
    assert ended.stderr == ""


def test_the_canary_is_alone(applied: Runs) -> None:
    world, _ = applied["all"]
    assert world.sent[:2] == ["spark1 memory", "spark1 memory"]
    assert len(world.sent) == 12


def test_the_lock_is_held_while_it_changes_and_given_back(applied: Runs) -> None:
    for name, what in (("all", "spark1, spark2, spark3"), ("one", "spark2: preflight, rdma")):
        world, _ = applied[name]
        seen = json.loads((world.folder / "seen").read_text())
        assert seen["what"] == what
        assert seen["id"] == world.journals[0].stem
        assert not world.lock.exists()


def test_of_one_machine_and_role_nothing_else_is_touched(applied: Runs) -> None:
    world, ended = applied["one"]
    assert ended.code == 0
    assert set(world.sent) == {"spark2 rdma"}
    assert world.connected == ["spark1", "spark2"] * 2, "the head for its lock alone, before and under it"


@pytest.mark.parametrize(("name", "times"), [("all", 2), ("yes", 2), ("nothing", 1)])
def test_facts_are_read_for_the_plan_that_is_shown_and_under_the_lock(name: str, times: int, applied: Runs) -> None:
    """The execution begins with what the plan under the lock has read."""
    world, ended = applied[name]
    assert ended.code == 0, ended.text
    assert sorted(world.read) == sorted(NAMES * times)


@pytest.mark.parametrize("name", ["nothing", "nothing-json"])
def test_with_nothing_to_do_there_is_neither_lock_nor_journal(name: str, applied: Runs) -> None:
    world, ended = applied[name]
    assert ended.code == 0
    assert (world.sent, world.journals, world.lock.parent.exists()) == ([], [], False)
    if name == "nothing":
        assert ended.stdout.splitlines() == ["3 hosts, 0 changes, 0 unknown", "nothing to do"]
    else:
        empty: dict[str, Any] = {"run": None, "journal": None, "hosts": [], "notes": [], "faults": []}
        assert json.loads(ended.stdout) == {"schema": "sparkrack.apply/2", "result": "nothing to do", **empty}


def test_json(applied: Runs) -> None:
    world, ended = applied["json"]
    assert ended.code == 0
    report = json.loads(ended.stdout)
    assert (report["schema"], report["result"]) == ("sparkrack.apply/2", "done")
    assert (report["run"], report["journal"]) == (world.journals[0].stem, str(world.journals[0]))
    assert report["hosts"] == [
        {"name": name, "changed": 2 if name == "spark3" else 0, "fault": "", "operation": ""} for name in NAMES
    ]
    assert "done; journal:" in ended.stderr


def test_quiet(applied: Runs) -> None:
    _, ended = applied["quiet"]
    assert not [line for line in ended.stdout.splitlines() if "Turn it off" in line]
    assert last(ended).startswith("done; journal: ")


def test_another_user_agrees(applied: Runs) -> None:
    world, ended = applied["yes"]
    assert ended.code == 0
    assert "Apply this? [y/N]: " in ended.stdout
    assert len(world.sent) == 12


def test_a_secret_is_where_it_belongs_and_nowhere_else(applied: Runs) -> None:
    world, _ = applied["all"]
    assert CANARY in (world.folder / "nodes/spark1/etc/memory.secret").read_text()
    for name, (world, ended) in applied.items():
        assert CANARY not in ended.text, name
        for path in (*world.journals, *world.folder.glob("seen")):
            assert CANARY not in path.read_text(), name


def test_no_terminal_is_led_astray(applied: Runs) -> None:
    for name, (_, ended) in applied.items():
        assert {sign for sign in ended.text if not sign.isprintable()} <= {"\n"}, name


def test_what_is_changed_is_silent_for_that_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three nodes in a ring, two are changed: with the other end of each cable between them and the third."""
    world = World(tmp_path / "world", new=("spark3",))
    file = world.folder / "rack.yaml"
    file.write_text(f"{file.read_text()}watch: {{server: spark3}}\n")
    (world.folder / "bin").mkdir()
    for name, text in {"ssh": SSH, "bin/amtool": AMTOOL}.items():
        (world.folder / name).write_text(text)
        (world.folder / name).chmod(0o755)
    (world.folder / "spark3").mkdir()
    environment = {"PATH": f"{world.folder}:{os.environ['PATH']}", "NODES": str(world.folder)}
    monkeypatch.setattr(rack_folder, "ENVIRONMENT", {**rack_folder.ENVIRONMENT, **environment})
    process = world.start("apply", "-y")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, output + errors
    assert "not silenced" not in output + errors
    silences = [
        'apply: node=~"spark1|spark2"',
        'apply: node=~"spark3" device=~"enp1s0f1np1|enP2p1s0f1np1" alertname=~"Link.+"',
        'apply: node=~"spark3" device=~"enp1s0f0np0|enP2p1s0f0np0" alertname=~"Link.+"',
        'apply: to=~"spark1/0|spark1/1|spark2/0|spark2/1" alertname=~"Switch(Drops|Errors)"',
    ]
    made = silenced(world.folder)
    assert sorted(made[:-1]) == sorted(2 * silences)
    assert made[-1].startswith("expire ")


@pytest.mark.parametrize(
    ("role", "silences"),
    [
        ("models", []),
        ("serving", [('unit=~"pair"',)]),
        (
            "memory",
            [('node=~"n0"',), ('to=~"n0/1"', 'alertname=~"Switch(Drops|Errors)"'), ('unit=~"pair"',)],
        ),
    ],
)
def test_only_what_a_plan_can_end_is_silent(role: str, silences: list[tuple[str, ...]]) -> None:
    found = loaded(serving_racks.text({"pair": serving_racks.unit(nodes=["n0", "n1"])}, serving_racks.machines(3)))
    made = plan(machine("n0", (role, EventKind.CHANGE, "x")), machine("n2"))
    assert silences_of_plan(found, made) == silences

"""Whole runs on nodes in folders: what is installed, what a unit that runs refuses, and what its coordinator is
asked."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from core.util import resources
from serving import desired, facts, services
from serving.programs import FILES
from tests.serving.serve_modules import serve_lifecycle
from tests.tiers import sampled
from tests.unit.model.serving_racks import unit
from tests.unit.ops.shells import rooted
from tests.unit.roles.cases import named
from tests.unit.roles.serving_nodes import ETC, SYSTEMD, ServingWorld
from tests.unit.roles.serving_units import KEY

UP = f"serve_coordinator /{ETC}/one.json up"
AGENT, COORDINATOR = "sparkrack-serve-one-agent.service", "sparkrack-serve-one-coordinator.service"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServingWorld:
    """Two nodes and a unit with a key, of which nothing is installed."""
    monkeypatch.setenv("UNIT_KEY", KEY)
    made = ServingWorld(tmp_path, monkeypatch)
    made.write({"one": keyed()})
    return made


@pytest.fixture
def installed(world: ServingWorld) -> ServingWorld:
    """The same after a run: the unit is ready."""
    ended = world.run()
    assert ended.failed == [], ended.log
    world.nodes["n0"].record()
    for node in world.nodes.values():
        node.rank(runs=True)
    world.forget()
    return world


def keyed(**keys: Any) -> dict[str, Any]:
    return unit(api={"port": 8000, "listen": "management", "key": {"env": "UNIT_KEY"}}, **keys)


def at_rest(world: ServingWorld, state: str = "down") -> None:
    world.nodes["n0"].record(state=state, desired_state="down" if state == "down" else "up", reason="two ranks ended")
    for node in world.nodes.values():
        node.rank(runs=False)


def sent(world: ServingWorld) -> list[int]:
    return [len(node.changes) for node in world.nodes.values()]


def test_the_first_run_installs_and_then_starts(world: ServingWorld) -> None:
    ended = world.run()
    assert ended.failed == [], ended.log
    n0, n1 = world.nodes.values()
    for node in (n0, n1):
        assert stat.S_IMODE((node.root / ETC).stat().st_mode) == 0o700
        assert len(list((node.root / "usr/local/lib/sparkrack/serve").iterdir())) == len(FILES)
        assert stat.S_IMODE(node.path("one.secret").stat().st_mode) == 0o600
        assert not node.path("one.pending").exists()
    assert n0.secret() == n1.secret()
    assert re.fullmatch("[0-9a-f]{64}\n", n0.secret())
    assert n0.path("one.key").read_text() == f"VLLM_API_KEY={KEY}\n"
    assert n0.path("one.token").read_text() == f"{KEY}\n"
    assert not any(n1.path(f"one.{ending}").exists() for ending in ("key", "token"))
    assert n1.calls("systemctl") == [
        f"systemctl --no-reload enable --quiet {AGENT}",
        "systemctl daemon-reload",
        f"systemctl restart {AGENT}",
    ]
    assert [f"systemctl restart {one}" for one in (AGENT, COORDINATOR)] == n0.calls("systemctl")[-2:]
    assert n0.calls("serve_coordinator") == [UP]
    assert n1.calls("serve_coordinator") == []


def test_a_run_without_changes_is_one_command(installed: ServingWorld) -> None:
    ended = installed.run()
    assert (ended.failed, sent(installed)) == ([], [0, 0])
    assert [len(node.texts) for node in installed.nodes.values()] == [1, 1]
    assert installed.run("dry").changing == 0


def test_a_plan_sends_nothing_and_names_everything(world: ServingWorld) -> None:
    ended = world.run("dry")
    assert sent(world) == [0, 0]
    for text in (
        f"write /{ETC}/one.secret",
        f"write /{ETC}/one.token",
        f"write /{ETC}/",
        f"enable {AGENT}",
        f"start {COORDINATOR}",
        "start unit one: a completion proves it, within 5400 s",
    ):
        assert text in ended.log


def test_no_secret_is_in_a_command_or_a_line(world: ServingWorld) -> None:
    logs = [world.run("dry").log, world.run().log]
    world.patch.setenv("UNIT_KEY", "another-quiet-horse-123")
    at_rest_record(world)
    logs.append(world.run("asked").log)
    lease = world.nodes["n0"].secret().strip()
    scripts = [script for node in world.nodes.values() for script in node.texts]
    for secret in (KEY, "another-quiet-horse-123", lease):
        assert not [text for text in (*logs, *scripts) if secret in text]
    assert f"rewrite /{ETC}/one.token" in logs[2]
    assert world.nodes["n0"].path("one.token").read_text() == "another-quiet-horse-123\n"


def at_rest_record(world: ServingWorld) -> None:
    world.nodes["n0"].record(state="down", desired_state="down")


@pytest.mark.parametrize("mode", ["dry", "asked", "yes"])
def test_a_unit_that_runs_is_not_touched(installed: ServingWorld, mode: str) -> None:
    installed.nodes["n0"].record(figures={"gates_s": 12.0, "ready_s": 131.2, "completion_s": "?"})
    installed.write({"one": keyed(context=32768)})
    ended = installed.run(mode)
    assert ended.failed == ["n0", "n1"]
    assert "and starts (away for about 3 min: its last start took 143 s), or `sparkrack serve stop one`" in ended.log
    assert sent(installed) == [0, 0]
    assert "unit one is up (its rank runs on n0), and one.args" in ended.log
    assert "run `sparkrack serve recreate one`" in ended.log


def test_how_long_a_unit_is_away_is_unknown_without_a_good_start(installed: ServingWorld) -> None:
    installed.nodes["n0"].record(figures={"gates_s": 12.0})
    installed.write({"one": keyed(context=32768)})
    ended = installed.run()
    assert "starts (away for an unknown time: no figure of a good start is recorded), or `sparkrack serve" in ended.log


def test_a_previous_version_is_named_and_its_note_goes_with_the_files(installed: ServingWorld) -> None:
    """`recreate` went back to it: while rack.yaml declares other files it is named, as by `serve status`."""
    n0, n1 = installed.nodes.values()
    for node in (n0, n1):
        node.path("one.previous").write_text("5\n")
    assert installed.run().failed == []
    assert sent(installed) == [0, 0], "the same files again are not a change"
    installed.write({"one": keyed(context=32768)})
    ended = installed.run()
    assert ended.failed == ["n0", "n1"]
    assert (
        "unit one is up with its previous version, which `recreate` went back to (its rank runs on n0), and"
        in ended.log
    )
    assert n0.path("one.previous").exists()
    at_rest(installed)
    assert installed.run().failed == []
    assert not n0.path("one.previous").exists()
    assert not n1.path("one.previous").exists()


def test_a_unit_whose_rank_runs_elsewhere_is_not_touched(installed: ServingWorld) -> None:
    """The difference is on one node, the only rank that runs on the other one."""
    n0, n1 = installed.nodes.values()
    n0.rank(runs=False)
    n0.record(state="held")
    n0.path("one.gate.json").write_text("{}")
    ended = installed.run()
    assert ended.failed == ["n0"]
    assert "unit one is up (its rank runs on n1), and one.gate.json would change" in ended.log
    assert sent(installed) == [0, 0]
    n1.rank(runs=False)
    assert installed.run().failed == []


def test_a_unit_that_is_about_to_run_is_not_touched(installed: ServingWorld) -> None:
    at_rest(installed)
    installed.nodes["n0"].record(state="gating")
    installed.nodes["n1"].path("one.args").write_text("x\n")
    assert "unit one is up (its coordinator reports gating), and one.args would change" in installed.run().log
    assert sent(installed) == [0, 0]


def test_programs_are_not_replaced_below_a_unit_that_runs(installed: ServingWorld) -> None:
    program = installed.nodes["n1"].root / "usr/local/lib/sparkrack/serve/serve_start_gate.py"
    program.write_text("exit 0\n")
    assert "unit one is up (its rank runs on n0), and serve_start_gate.py would change" in installed.run().log
    assert sent(installed) == [0, 0]
    at_rest(installed, "held")
    assert installed.run().failed == []
    assert "The gate of a rank" in program.read_text()
    assert f"systemctl restart {AGENT}" in installed.nodes["n1"].calls("systemctl")
    assert sent(installed)[0] == 0


def test_a_held_unit_is_brought_up_to_date_and_not_started(installed: ServingWorld) -> None:
    at_rest(installed, "held")
    installed.write({"one": keyed(context=32768)})
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert "unit one: held: two ranks ended; `sparkrack serve logs one` shows why" in ended.log
    for node in installed.nodes.values():
        assert "32768" in node.path("one.args").read_text()
    assert installed.nodes["n0"].calls("serve_coordinator") == []
    ended = installed.run("dry")
    assert (ended.changing, "unit one: held" in ended.log) == (0, True)


def test_a_unit_that_is_held_by_a_gate_may_be_started(installed: ServingWorld) -> None:
    at_rest(installed, "held")
    installed.nodes["n0"].record(state="held", reason="gate of n1: 12 GiB", cause="gate")
    ended = installed.run("dry")
    assert "unit one: held: gate of n1: 12 GiB; `sparkrack serve start one` starts it" in ended.log


def test_a_unit_that_was_stopped_is_started_again(installed: ServingWorld) -> None:
    at_rest(installed)
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert installed.nodes["n0"].calls("systemctl", "serve_coordinator") == [UP]


def test_the_desired_state_down_stops_a_unit(installed: ServingWorld) -> None:
    installed.write({"one": keyed(state="down")})
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert "stop unit one" in ended.log
    assert installed.nodes["n0"].calls("systemctl", "serve_coordinator") == [UP.replace(" up", " down")]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


@pytest.mark.parametrize("declared", ["one", "two"])
def test_a_slot_of_which_another_unit_is_up_is_left_to_serve_use(world: ServingWorld, declared: str) -> None:
    """Unit two is up, as after a `serve use` that was killed before it has changed rack.yaml."""
    units = {name: keyed(slot="main", state="up" if name == "one" else "down") for name in ("one", "two")}
    world.write(units)
    assert world.run().failed == []
    world.write({name: {**one, "state": "up" if name == declared else "down"} for name, one in units.items()})
    for node in world.nodes.values():
        node.rank(runs=True, unit="two")
    world.nodes["n0"].record(state="down", desired_state="down")
    world.nodes["n0"].record("two")
    world.forget()
    ended = world.run()
    assert world.nodes["n0"].calls("serve_coordinator") == []
    if declared == "two":
        assert ended.failed == [], ended.log
        return
    assert ended.failed
    assert "unit two of slot main is up, and rack.yaml has one up; `sparkrack serve use one`, or" in ended.log


def test_a_coordinator_that_refuses_fails_the_run(installed: ServingWorld) -> None:
    at_rest(installed)
    (installed.nodes["n0"].root / "coordinator-silent").touch()
    assert installed.run().failed == ["n0"]


RECORDS = (
    "",
    "{",
    "[]",
    '{"name": "two", "desired_state": "up", "state": "ready", "reason": ""}',
    '{"name": "one", "desired_state": "up", "state": "fine", "reason": ""}',
    '{"name": "one", "desired_state": true, "state": "ready", "reason": ""}',
    '{"name": "one", "desired_state": "up", "state": ["ready"], "reason": ""}',
    '{"name": "one", "desired_state": {}, "state": "ready", "reason": ""}',
    '{"name": "one", "desired_state": "up", "state": "ready"}',
    "[" * 60000,
    "\udcff",
)
"""Records of a coordinator that cannot be read."""


def test_a_record_that_cannot_be_read_is_unknown(installed: ServingWorld) -> None:
    record = installed.nodes["n0"].root / "var/lib/sparkrack/serve/one.json"
    for content in RECORDS:
        with named(repr(content[:80])):
            record.write_bytes(content.encode(errors="surrogateescape"))
            ended = installed.run("dry")
            assert ended.failed == ["n0"]
            assert (
                "serving-records: /var/lib/sparkrack/serve/one.json is not the record of a coordinator; " in ended.log
            )
            assert "sparkrack-serve-one-agent.service`), remove the file, and run again" in ended.log
            assert sent(installed) == [0, 0]


def test_what_a_hand_changed_is_put_right(installed: ServingWorld) -> None:
    n0, n1 = installed.nodes.values()
    at_rest(installed, "held")
    n1.path("one.env").write_text("X=1\n")
    n1.path("one.json").chmod(0o666)
    n0.path("one.token").chmod(0o644)
    (n0.root / ETC).chmod(0o755)
    assert installed.run("dry").changing == 2
    assert installed.run().failed == []
    assert "X=1" not in n1.path("one.env").read_text()
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (n1.path("one.json"), n0.path("one.token"), n0.root / ETC)
    ] == [
        0o644,
        0o600,
        0o700,
    ]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_services_are_enabled_and_started_also_of_a_unit_that_runs(installed: ServingWorld) -> None:
    """Neither disturbs a rank, and nothing is restarted."""
    n1 = installed.nodes["n1"]
    (n1.root / SYSTEMD / "multi-user.target.wants" / AGENT).unlink()
    n1.shell(f"systemctl stop {AGENT}")
    n1.forget()
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert n1.calls("systemctl") == [
        f"systemctl enable --quiet {AGENT}",
        f"systemctl start {AGENT}",
    ]
    assert sent(installed)[0] == 0


@pytest.mark.parametrize("up", [True, False])
def test_a_unit_file_that_systemd_has_not_read_restarts_nothing_of_a_unit_that_runs(
    installed: ServingWorld, up: bool
) -> None:
    n1 = installed.nodes["n1"]
    if not up:
        at_rest(installed, "held")
    (n1.root / "unread").touch()
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert n1.calls("systemctl") == ["systemctl daemon-reload", *([] if up else [f"systemctl restart {AGENT}"])]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_a_coordinator_that_is_masked_until_the_boot_is_unmasked_and_started_below_a_unit_that_runs(
    installed: ServingWorld,
) -> None:
    n0 = installed.nodes["n0"]
    n0.shell(f"systemctl stop {COORDINATOR}; systemctl mask --runtime {COORDINATOR}")
    n0.forget()
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert f"unmask {COORDINATOR}" in ended.log
    assert n0.calls("systemctl")[-1] == f"systemctl start {COORDINATOR}"
    assert not [call for call in n0.calls("systemctl") if "restart" in call]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


@pytest.mark.parametrize("fault", sampled(("other", "mode", "owner", "short", "letters", "missing", "link"), 3))
def test_a_lease_secret_that_is_not_shared_is_made_again_for_all(installed: ServingWorld, fault: str) -> None:
    at_rest(installed, "held")
    before = installed.nodes["n0"].secret()
    path = installed.nodes["n1"].path("one.secret")
    match fault:
        case "other":
            path.write_text("ab" * 32 + "\n")
        case "mode":
            for node in installed.nodes.values():
                node.path("one.secret").chmod(0o640)
        case "owner":
            if os.geteuid() != 0:
                pytest.skip("another owner needs root")
            for node in installed.nodes.values():
                os.chown(node.path("one.secret"), 65534, -1)
        case "letters":
            for node in installed.nodes.values():
                node.path("one.secret").write_text("g" * 64 + "\n")
        case "short":
            for node in installed.nodes.values():
                node.path("one.secret").write_text("0f\n")
        case "missing":
            path.unlink()
        case "link":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to("elsewhere")
    ended = installed.run()
    assert ended.failed == [], ended.log
    n0, n1 = installed.nodes.values()
    assert n0.secret() == n1.secret() != before
    assert not n1.path("one.secret").is_symlink()
    assert [f"systemctl restart {one}" for one in (AGENT, COORDINATOR)] == n0.calls("systemctl")[-2:]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_a_token_of_ray_that_a_node_lacks_is_made_again_for_all_with_the_lease(world: ServingWorld) -> None:
    world.write({"one": keyed(engine="vllm-ray")})
    assert world.run().failed == []
    n0, n1 = world.nodes.values()
    before, token = n0.secret(), n0.path("one.ray").read_text()
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert n1.path("one.ray").read_text() == token
    assert stat.S_IMODE(n1.path("one.ray").stat().st_mode) == 0o600
    n0.record(state="down", desired_state="down", reason="asked to stop")
    world.forget()
    n1.path("one.ray").write_text("another")
    ended = world.run()
    assert ended.failed == [], ended.log
    assert n0.secret() == n1.secret() != before
    assert n0.path("one.ray").read_text() == n1.path("one.ray").read_text() not in (token, "another")
    world.write({"one": keyed()})
    n0.record(state="down", desired_state="down", reason="asked to stop")
    assert world.run().failed == []
    assert not n0.path("one.ray").exists()


@pytest.mark.parametrize("mode", ["dry", "yes"])
def test_a_lease_secret_is_not_made_for_a_part_of_the_nodes(world: ServingWorld, mode: str) -> None:
    ended = world.run(mode, only=("n0",))
    assert ended.failed == ["n0"]
    assert "n1 of the same unit is not in this run, has failed, or cannot be read" in ended.log
    assert sent(world) == [0, 0]


def test_a_run_for_one_node_of_an_installed_unit(installed: ServingWorld) -> None:
    assert (installed.run(only=("n1",)).failed, sent(installed)) == ([], [0, 0])


def test_a_unit_is_not_started_when_a_node_failed(world: ServingWorld) -> None:
    (world.nodes["n1"].root / "fails-restart").touch()
    ended = world.run()
    assert ended.failed == ["n0", "n1"]
    assert "unit one is not started: n1 is not in this run, has failed, or cannot be read" in ended.log
    assert world.nodes["n0"].calls("serve_coordinator") == []


@pytest.mark.parametrize("after", sampled((0, 3, 9, 14, 18), 5, first=2))
def test_an_interrupted_run_is_finished_by_the_next(world: ServingWorld, after: int) -> None:
    n1 = world.nodes["n1"]
    n1.lost = after
    assert "n1" in world.run().failed
    n1.lost = None
    world.forget()
    ended = world.run()
    assert ended.failed == [], ended.log
    assert f"systemctl restart {AGENT}" in n1.calls("systemctl")
    assert world.nodes["n0"].secret() == n1.secret()
    assert world.nodes["n0"].calls("serve_coordinator") == [UP]


def test_the_lock_file_is_read_when_the_operation_runs(world: ServingWorld) -> None:
    world.write({"one": keyed()}, locked=False)
    plan = world.run("dry")
    assert plan.failed == []
    assert "install unit one: its files are known when the images and models of this run" in plan.log
    ended = world.run()
    assert ended.failed == ["n0", "n1"]
    assert "the lock file has no ID of nvcr.io/nvidia/vllm:26.04-py3" in ended.log
    assert sent(world) == [0, 0]


def test_a_broken_lock_file_is_unknown(world: ServingWorld) -> None:
    (world.folder / "rack.lock.json").write_text("{")
    ended = world.run("dry")
    assert (ended.failed, "rack.lock.json" in ended.log) == (["n0", "n1"], True)


def test_a_key_that_cannot_be_fetched_is_unknown(world: ServingWorld) -> None:
    world.patch.delenv("UNIT_KEY")
    ended = world.run()
    assert "rack.yaml:" in ended.log
    assert "serving.units.one.api.key: environment variable UNIT_KEY is not set; export it before the run" in ended.log
    assert world.nodes["n0"].changes == []
    assert "n0" in ended.failed


def test_a_key_with_a_space_is_refused_without_it(world: ServingWorld) -> None:
    world.patch.setenv("UNIT_KEY", "quiet horse")
    ended = world.run("dry")
    assert "the key must have printable ASCII characters only" in ended.log
    assert "quiet horse" not in ended.log


def test_a_unit_that_is_no_longer_declared_is_removed(installed: ServingWorld) -> None:
    at_rest(installed)
    for node in installed.nodes.values():
        previous = node.root / "var/lib/sparkrack/serve/previous/one.7.tar"
        previous.parent.mkdir(parents=True)
        previous.touch()
    installed.write({"two": keyed(state="down")})
    ended = installed.run()
    assert ended.failed == [], ended.log
    assert "stop and remove unit one" in ended.log
    for node in installed.nodes.values():
        left = [path for path in node.root.rglob("*one*") if path.name.partition(".")[0] != "calls"]
        assert left == []
        assert node.path("two.json").exists()
    stops = [call for call in installed.nodes["n0"].calls("systemctl") if call.startswith("systemctl stop ")]
    assert stops == [f"systemctl stop {AGENT} {COORDINATOR}", "systemctl stop sparkrack-serve-one.service"]
    installed.forget()
    assert (installed.run().failed, sent(installed)) == ([], [0, 0])


def test_a_unit_that_is_no_longer_declared_and_runs_is_reported(installed: ServingWorld) -> None:
    installed.write({"two": keyed(state="down", nodes=["n1"], parallel={"tensor": 1})})
    ended = installed.run("dry")
    assert "rack.yaml has no such unit on this node, and it is up (its rank runs on n0)" in ended.log
    assert "stop and remove" not in ended.log


def test_of_a_unit_that_goes_the_coordinator_and_the_agent_are_stopped_before_the_rank() -> None:
    units = [f"{desired.UNITS}/sparkrack-serve-one{part}.service" for part in ("", "-agent", "-coordinator")]
    text = services.remove_files([*units, "/etc/sparkrack/serve/one.json"])
    one = "sparkrack-serve-one"
    assert text.startswith(f"systemctl stop {one}-coordinator.service {one}-agent.service {one}.service; rm -f ")
    assert text.endswith("; systemctl daemon-reload")
    assert services.remove_files(["/etc/sparkrack/serve/one.json"]).startswith("rm -f /etc/sparkrack/serve/one.json")


def test_a_node_that_leaves_a_unit_loses_its_files(installed: ServingWorld) -> None:
    at_rest(installed)
    installed.write({"one": keyed(nodes=["n1"], parallel={"tensor": 1})})
    ended = installed.run()
    assert ended.failed == [], ended.log
    n0, n1 = installed.nodes.values()
    assert not n0.path(AGENT).exists()
    assert n1.path(COORDINATOR).exists()
    assert n1.path("one.token").exists()
    assert n1.calls("serve_coordinator") == [UP]


def test_a_slice_of_another_program_stays(installed: ServingWorld) -> None:
    other = installed.nodes["n0"].path("sparkrack-other.slice")
    other.write_text("[Slice]\n")
    assert (installed.run().failed, other.exists(), sent(installed)) == ([], True, [0, 0])


# Files beside rack.yaml


@pytest.fixture
def patched(world: ServingWorld) -> ServingWorld:
    """The same world, whose unit mounts a folder; it is installed and at rest."""
    folder = world.folder / "patches/glm"
    (folder / "vllm").mkdir(parents=True)
    (folder / "run.sh").write_text("echo fixed\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "vllm/fix.py").write_text("x = 1\n")
    world.write({"one": keyed(files={"/workspace/fix": "patches/glm"}, state="down")})
    ended = world.run()
    assert ended.failed == [], ended.log
    world.forget()
    return world


def mounted(world: ServingWorld, node: str) -> dict[str, tuple[str, int]]:
    """The files that a node mounts: text and mode, by the path below the folder of their digest."""
    top = world.nodes[node].root / ETC / "one.files"
    return {
        str(path.relative_to(top)).partition("/")[2]: (path.read_text(), stat.S_IMODE(path.stat().st_mode))
        for path in top.rglob("*")
        if path.is_file()
    }


def test_each_node_gets_the_mounted_files_with_their_modes_and_a_second_run_sends_nothing(
    patched: ServingWorld,
) -> None:
    for name, node in patched.nodes.items():
        assert mounted(patched, name) == {"run.sh": ("echo fixed\n", 0o755), "vllm/fix.py": ("x = 1\n", 0o644)}
        (folder,) = (node.root / ETC / "one.files").iterdir()
        assert f"\n/{ETC}/one.files/{folder.name}:/workspace/fix:ro\n" in node.path("one.args").read_text()
        assert stat.S_IMODE((folder / "vllm").stat().st_mode) == 0o755, "a container reads it as any user"
    assert (patched.run().failed, sent(patched)) == ([], [0, 0])


def test_a_change_beside_rack_yaml_goes_to_each_node_and_what_was_before_is_removed(patched: ServingWorld) -> None:
    (patched.folder / "patches/glm/vllm/fix.py").write_text("x = 2\n")
    before = [list((node.root / ETC / "one.files").iterdir()) for node in patched.nodes.values()]
    ended = patched.run()
    assert ended.failed == [], ended.log
    for (old,), (name, node) in zip(before, patched.nodes.items(), strict=True):
        assert mounted(patched, name)["vllm/fix.py"] == ("x = 2\n", 0o644)
        assert not old.exists()
        assert len(list((node.root / ETC / "one.files").iterdir())) == 1
    patched.forget()
    assert (patched.run().failed, sent(patched)) == ([], [0, 0])


def test_what_a_hand_changed_among_the_mounted_files_is_seen_and_put_right(patched: ServingWorld) -> None:
    (folder,) = (patched.nodes["n1"].root / ETC / "one.files").iterdir()
    wanted = mounted(patched, "n1")
    for change in (
        lambda: (folder / "vllm/fix.py").write_text("x = 3\n"),
        lambda: (folder / "run.sh").chmod(0o777),
        lambda: (folder / "vllm/fix.py").unlink(),
        lambda: (folder / "vllm/more fix.py").write_text("foreign"),
        lambda: (folder / "vllm/link").symlink_to("fix.py"),
        lambda: (folder / "vllm/dangling").symlink_to("nowhere"),
    ):
        change()
        assert patched.run("dry").changing == 1
        ended = patched.run()
        assert ended.failed == [], ended.log
        assert mounted(patched, "n1") == wanted
        assert not list(folder.rglob("link")), "a link is removed"
        assert patched.run("dry").changing == 0


def test_mounted_files_below_a_unit_that_runs_are_not_touched(patched: ServingWorld) -> None:
    patched.nodes["n0"].record()
    for node in patched.nodes.values():
        node.rank(runs=True)
    (patched.folder / "patches/glm/run.sh").write_text("echo other\n")
    patched.write({"one": keyed(files={"/workspace/fix": "patches/glm"})})
    ended = patched.run()
    assert ended.failed == ["n0", "n1"]
    assert "unit one is up (its rank runs on n0), and run.sh" in ended.log
    assert mounted(patched, "n0")["run.sh"] == ("echo fixed\n", 0o755)


@pytest.mark.parametrize("after", sampled((0, 2, 4, 6, 8), 5, first=2))
def test_a_run_that_ends_while_it_sends_files_is_finished_by_the_next(patched: ServingWorld, after: int) -> None:
    (patched.folder / "patches/glm/vllm/fix.py").write_text("x = 2\n")
    patched.nodes["n1"].lost = after
    assert "n1" in patched.run().failed
    patched.nodes["n1"].lost = None
    ended = patched.run()
    assert ended.failed == [], ended.log
    assert mounted(patched, "n0") == mounted(patched, "n1")
    assert patched.run("dry").changing == 0


def test_the_mounted_files_go_with_the_unit(patched: ServingWorld) -> None:
    patched.write({"two": keyed(state="down")})
    ended = patched.run()
    assert ended.failed == [], ended.log
    assert not any((node.root / ETC / "one.files").exists() for node in patched.nodes.values())


def test_a_previous_version_has_its_mounted_files(patched: ServingWorld) -> None:
    node = patched.nodes["n0"]
    script = resources.file_text("sparkrack.serving", "files/serve-previous.sh")

    def previous(*words: str) -> str:
        done = node.shell(shlex.join(["sh", "-c", rooted(script, node.root), "serve-previous", *words]))
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode()

    previous("keep", "one", "7")
    wanted, arguments = mounted(patched, "n0"), node.path("one.args").read_text()
    assert previous("list", "one").split()[-1] == "same"
    (patched.folder / "patches/glm/run.sh").write_text("echo worse\n")
    (patched.folder / "patches/glm/more").write_text("")
    assert patched.run().failed == []
    assert mounted(patched, "n0") != wanted
    assert previous("list", "one").split()[-1] == "other"
    previous("restore", "one", "7")
    assert (mounted(patched, "n0"), node.path("one.args").read_text()) == (wanted, arguments)
    (folder,) = (node.root / ETC / "one.files").iterdir()
    assert stat.S_IMODE((folder / "vllm").stat().st_mode) == 0o755


def test_the_states_are_those_of_the_coordinator() -> None:
    assert facts.STATES == serve_lifecycle.STATES
    assert set(facts.AT_REST) < set(facts.STATES)

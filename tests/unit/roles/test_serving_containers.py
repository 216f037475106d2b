"""Drift between the files of a unit and what runs: whole runs on nodes in folders, a process as docker's client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.programs import RUN, programs
from tests.unit.roles.serving_nodes import SYSTEMD, ServingNode, ServingWorld
from tests.unit.roles.test_serving_runs import AGENT, at_rest, installed, keyed, sent, world

__all__ = ["installed", "world"]


class Client:
    """The script of a rank's service, in whose place a program called docker waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        (folder / "docker").symlink_to(Path(sys.executable).resolve())
        (folder / "run").write_text("import time; print('runs', flush=True); time.sleep(600)\n")
        (script,) = (file for file in programs() if file.path == RUN)
        (folder / "serve-run.sh").write_bytes(script.content)

    def start(self, node: ServingNode) -> None:
        """Start a rank with the arguments that its file has now."""
        words = ["sh", str(self.folder / "serve-run.sh"), str(node.path("one.args"))]
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        begun = subprocess.Popen(words, cwd=self.folder, env=os.environ | path, stdout=subprocess.PIPE)
        self.begun.append(begun)
        assert begun.stdout
        assert begun.stdout.readline() == b"runs\n"
        node.client(begun.pid)

    def end(self) -> None:
        for begun in self.begun:
            begun.kill()
            begun.communicate()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path / "client")
    yield made
    made.end()


@pytest.fixture
def running(installed: ServingWorld, client: Client) -> ServingWorld:
    """The unit runs as declared."""
    for node in installed.nodes.values():
        client.start(node)
        node.container()
    return installed


def drift(world: ServingWorld) -> list[str]:
    """The lines of a plan about the unit, of which nothing is sent."""
    ended = world.run("dry")
    assert sent(world) == [0, 0]
    return [line.partition("unit one: ")[2] for line in ended.log.splitlines() if "unit one: " in line]


def test_what_runs_as_declared_is_no_drift(running: ServingWorld) -> None:
    ended = running.run("dry")
    assert (ended.failed, ended.changing, drift(running)) == ([], 0, [])
    assert [len(node.texts) for node in running.nodes.values()] == [2, 2], "one command for each of two plans"


def test_a_rank_that_was_started_with_other_arguments_is_drift(installed: ServingWorld, client: Client) -> None:
    """The file was edited before the start, and put right since."""
    n0, n1 = installed.nodes.values()
    right = n1.path("one.args").read_text()
    n1.path("one.args").write_text(right.replace("--max-num-seqs\n", "--max-num-seqs\n1"))
    for node in (n0, n1):
        client.start(node)
        node.container()
    n1.path("one.args").write_text(right)
    (found,) = drift(installed)
    assert found.startswith(
        "its rank on n1 was started with other arguments than one.args has; `sparkrack serve restart"
    )


def test_an_edited_file_of_a_unit_that_runs_is_reported_once(running: ServingWorld) -> None:
    n1 = running.nodes["n1"]
    n1.path("one.args").write_text(n1.path("one.args").read_text() + "--x\n")
    n1.path("one.env").write_text("X=1\n")
    ended = running.run("dry")
    assert ended.failed == ["n1"]
    assert "unit one is up (its rank runs on n0), and one.args, one.env would change" in ended.log
    assert "was started with other arguments" not in ended.log
    assert "has not the" not in ended.log


def test_a_container_with_another_environment_is_drift(running: ServingWorld) -> None:
    running.nodes["n0"].container(VLLM_HOST_IP="10.0.0.99", MASTER_ADDR="10.0.0.99")
    (found,) = drift(running)
    assert found.startswith("its container on n0 has not the MASTER_ADDR, VLLM_HOST_IP of one.env; `sparkrack serve")


@pytest.mark.parametrize("state", ["running", "exited", "created"])
def test_a_container_that_was_started_by_hand_is_drift(installed: ServingWorld, state: str) -> None:
    at_rest(installed, "held")
    installed.nodes["n1"].container(state=state)
    found, held = sorted(drift(installed))
    assert found.startswith(
        f"container sparkrack-one on n1 ({state}) is not of its service, and no rank starts beside it"
    )
    assert held.startswith("held: two ranks ended")


def test_no_variable_of_a_container_leaves_the_node(running: ServingWorld) -> None:
    n0 = running.nodes["n0"]
    assert "sk-quiet-horse" in (n0.root / "environment").read_text()
    n0.container(VLLM_HOST_IP="10.0.0.99")
    assert not [key for key, answer in n0.facts().items() if b"quiet-horse" in answer or b"10.0.0.99" in answer]


def test_a_docker_that_does_not_answer_is_unknown(running: ServingWorld) -> None:
    (running.nodes["n1"].root / "docker-silent").touch()
    ended = running.run("dry")
    assert ended.failed == ["n1"]
    assert "serving-containers: docker does not list its containers; see `systemctl status docker`" in ended.log


def test_containers_of_others_are_no_drift(running: ServingWorld) -> None:
    n1 = running.nodes["n1"]
    for name in ("sparkrack-two", "sparkrack-One", "sparkrack-"):
        with (n1.root / "containers").open("a") as file:
            file.write(f"{name} running\n")
    assert drift(running) == []


def test_a_node_without_a_unit_does_not_ask_docker(world: ServingWorld) -> None:
    world.write({"one": keyed()})
    for node in world.nodes.values():
        assert node.facts()["serving-containers"] == b""
        assert node.calls("docker") == []


@pytest.mark.parametrize("verb", ["enable", "start"])
def test_a_service_that_is_disabled_or_stopped_is_drift_and_put_right(running: ServingWorld, verb: str) -> None:
    """The rank of the same node is not disturbed."""
    n0, n1 = running.nodes.values()
    if verb == "enable":
        (n1.root / SYSTEMD / "multi-user.target.wants" / AGENT).unlink()
    else:
        n1.shell(f"systemctl stop {AGENT}")
    n1.forget()
    plan = running.run("dry")
    assert (plan.failed, plan.changing, f"{verb} {AGENT}" in plan.log) == ([], 1, True)
    assert (n0.changes, n1.changes) == ([], [])
    assert running.run().failed == []
    assert (n0.changes, [call.split()[-1] for call in n1.calls("systemctl") if verb in call]) == ([], [AGENT])
    assert running.run("dry").changing == 0

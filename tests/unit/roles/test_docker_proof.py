"""The proof of the docker role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.model import CONTAINER_SLICE
from roles.docker import desired, verify
from roles.docker.options import DockerOptions
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import stand_in
from tests.unit.roles.checked_node import checks, reported

RACK = loaded(SWITCH)
CONFIG = desired.edited("", RACK.options(DockerOptions))
ID = "a" * 32
LIMIT = str(100 * 1024**3)
DOCKER = """\
case "$*" in info*) echo 'systemd false json-file {"nvidia":{}}';; ps*) echo c1;; *) echo '/web LIMIT LIMIT 77';; esac
""".replace("LIMIT", LIMIT)
SYSTEMCTL = f"""\
case "$*" in is-active*) echo active;; is-enabled*) echo enabled;; *MainPID*) echo 66;; *InvocationID*) echo {ID};; esac
"""


def node(root: Path) -> Path:
    files = {
        desired.CONFIG: CONFIG,
        f"{desired.RUN}/docker.{ID}": CONFIG,
        "/proc/66/cmdline": "/usr/bin/dockerd\0-H\0fd://\0",
        "/proc/77/cgroup": f"0::/{CONTAINER_SLICE}/docker-c1.scope\n",
    }
    for path, text in files.items():
        file = Path(f"{root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    stand_in(root, "docker", DOCKER)
    stand_in(root, "systemctl", SYSTEMCTL)
    stand_in(root, "dockerd")
    stand_in(root, "nvidia-ctk")
    stand_in(root, "stat", "echo root:root:644")
    stand_in(root, "id", "echo ops docker")
    return root


def failures(root: Path) -> list[str]:
    return [text for check in checks(verify) for text in reported(check.values[0], root, RACK)]


def test_a_node_that_is_right(tmp_path: Path) -> None:
    assert failures(node(tmp_path)) == []


TOOLS = [
    ("systemctl", SYSTEMCTL.replace("echo active", "echo failed"), "docker.service is failed, wanted active"),
    ("systemctl", SYSTEMCTL.replace("echo enabled", "echo disabled"), "docker.service is disabled, wanted enabled"),
    ("docker", DOCKER.replace("systemd", "cgroupfs"), "docker's cgroup driver is cgroupfs, wanted systemd"),
    ("docker", DOCKER.replace("false", "true"), "docker's live-restore is true, wanted false"),
    ("docker", DOCKER.replace("json-file", "journald"), "docker's log driver is journald, wanted json-file"),
    ("docker", DOCKER.replace("nvidia", "runc"), "docker has no runtime nvidia, though nvidia-ctk is there"),
    ("docker", DOCKER.replace(f"web {LIMIT}", "web 0"), "container web may take all memory, wanted at most 100G"),
    (
        "docker",
        DOCKER.replace(f"{LIMIT} 77", "-1 77"),
        "container web may swap, wanted --memory-swap equal to --memory",
    ),
    ("dockerd", "echo 'unable to configure' >&2; exit 1", "unable to configure"),
    ("stat", "echo ops:ops:644", "/etc/docker/daemon.json belongs to ops:ops"),
    ("stat", "echo root:root:666", "/etc/docker/daemon.json can be written by others, its mode is 666"),
    ("docker", DOCKER.replace("systemd false", " false"), "docker info reports no cgroup driver: no reason given"),
    (
        "docker",
        f"case $1 in info) echo 'no permission' >&2;; esac\n{DOCKER.replace('systemd false', ' false')}",
        "docker info reports no cgroup driver: no permission",
    ),
    ("id", "echo ops sudo", "ops is not in group docker"),
    ("id", "echo 'id: ops: no such user' >&2; exit 1", "id: ops: no such user"),
]


@pytest.mark.parametrize(("tool", "script", "says"), TOOLS)
def test_what_a_tool_says(tmp_path: Path, tool: str, script: str, says: str) -> None:
    stand_in(node(tmp_path), tool, script)
    assert failures(tmp_path) == [f"spark1: {says}"]


FILES = [
    (desired.CONFIG, CONFIG.replace("50m", "9m"), "docker's daemon.json says another log-opts max-size than rack.yaml"),
    (
        f"{desired.RUN}/docker.{ID}",
        "{}\n",
        (
            "docker's daemon.json was started with another cgroup-parent, exec-opts, log-driver, log-opts max-size, "
            "log-opts max-file, live-restore, default-ulimits memlock than rack.yaml"
        ),
    ),
    (
        "/proc/77/cgroup",
        "0::/system.slice/docker-c1.scope\n",
        f"container web is outside {CONTAINER_SLICE}, in /system.slice/docker-c1.scope: recreate it",
    ),
]


@pytest.mark.parametrize(("path", "text", "says"), FILES)
def test_what_a_file_says(tmp_path: Path, path: str, text: str, says: str) -> None:
    Path(f"{node(tmp_path)}{path}").write_text(text)
    assert failures(tmp_path) == [f"spark1: {says}"]


@pytest.mark.parametrize("path", [desired.CONFIG, f"{desired.RUN}/docker.{ID}"])
def test_a_file_that_is_not_there(tmp_path: Path, path: str) -> None:
    Path(f"{node(tmp_path)}{path}").unlink()
    (reported,) = failures(tmp_path)
    assert path in reported
    assert "No such file" in reported


def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    stand_in(node(tmp_path), "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert failures(tmp_path) == [
        "spark1: docker info: Cannot connect to the Docker daemon",
        "spark1: docker ps: Cannot connect to the Docker daemon",
    ]


def test_a_container_that_ends_while_it_is_asked_about_is_left_out(tmp_path: Path) -> None:
    stand_in(node(tmp_path), "docker", DOCKER.replace("*) echo '/web", "*) exit 1; echo '/web"))
    assert failures(tmp_path) == []


def test_an_engine_that_does_not_run_has_no_settings(tmp_path: Path) -> None:
    stand_in(node(tmp_path), "systemctl", "exit 1")
    assert failures(tmp_path)[0] == "spark1: docker.service is unknown, wanted active"

"""How nodes are kept: what most of them have, and who has something else."""

from __future__ import annotations

import pytest

from roles.docker.options import DockerOptions
from roles.driver.options import DriverOptions
from roles.memory.options import MemoryOptions
from tests.unit.discovery.worlds import ID, PACKAGES, World, world
from tests.unit.model.racks import SWITCH, loaded


@pytest.fixture
def found() -> World:
    return world(loaded(SWITCH))


def reported(found: World) -> str:
    return "\n".join(str(gap) for gap in found.sheet().unrepresentable)


def both(found: World, question: str, *lines: str) -> None:
    for node in found.nodes:
        found.say(node, question, *lines)


def test_memory_is_as_it_is_live(found: World) -> None:
    both(found, "memory.swap", "Filename Type Size Used Priority", "/swap.img file 16777212 0 -2")
    both(found, "memory.min_free_kbytes", "45155")
    both(found, "memory.overcommit_memory", "1")
    memory = found.adopted().options(MemoryOptions)
    assert (memory.swap, memory.min_free_kbytes, memory.overcommit_memory) == (True, 45155, 1)
    assert reported(found) == ""


def test_who_differs_is_reported(found: World) -> None:
    found.say("spark2", "memory.min_free_kbytes", "45155")
    assert found.adopted().options(MemoryOptions).min_free_kbytes == 1572864
    assert reported(found) == "memory.min_free_kbytes: spark2 has 45155, the file has 1572864"


def test_what_the_file_cannot_say_is_reported(found: World) -> None:
    both(found, "memory.overcommit_memory", "2")
    assert found.adopted().options(MemoryOptions).overcommit_memory == 0
    assert reported(found) == "memory.overcommit_memory: is 2 on the nodes, which the file cannot express"


@pytest.mark.parametrize(
    ("packages", "why"),
    [
        (
            (PACKAGES[0].replace("hold", "install"), *PACKAGES[1:]),
            "1 packages are not held, like nvidia-driver-580-open",
        ),
        ((PACKAGES[0].replace("580.159", "580.142"), *PACKAGES[1:]), "its packages are not those of driver 580.159.03"),
        (PACKAGES[:2], "its packages are not those of driver 580.159.03"),
        ((), "driver, kernel or their packages are unknown"),
    ],
)
def test_a_driver_is_declared_only_when_it_is_installed_loaded_and_held(
    found: World, packages: tuple[str, ...], why: str
) -> None:
    assert found.adopted().declared(DriverOptions)
    found.say("spark2", "packages", *packages)
    assert found.adopted().declared(DriverOptions) is None
    assert f"driver: spark2: {why}" in reported(found)
    found.say("spark2", "packages", *PACKAGES)
    found.say("spark2", "kernel", "6.17.0-1014-nvidia")
    assert found.adopted().declared(DriverOptions) is None


def test_a_kernel_that_no_package_can_have_is_not_declared(found: World) -> None:
    both(found, "kernel", "6.17.0-1021-Custom")
    assert found.adopted().declared(DriverOptions) is None
    assert "driver: spark1: driver.kernel: 6.17.0-1021-Custom is not a kernel as packages name it" in reported(found)


def test_docker_is_as_it_is_and_defaults_are_marked(found: World) -> None:
    both(found, "docker.logs", '"log-driver": "journald"')
    both(found, "docker.log_size", '"max-size" : "20m"')
    both(found, "docker.log_files", '"max-file":"3"')
    both(found, "docker.live_restore", '"live-restore": true')
    both(found, "docker.memory", str(90 << 30))
    docker = found.adopted().options(DockerOptions)
    assert docker.logs == "journald"
    assert (docker.memory, docker.log_size, docker.log_files, docker.live_restore) == ("90G", "20M", 3, True)
    for option in ("logs", "log_size", "log_files", "live_restore"):
        both(found, f"docker.{option}")
    both(found, "docker.memory", "infinity")
    sheet = found.sheet()
    assert sheet.data["docker"] == {
        "memory": "100G",
        "logs": "json-file",
        "log_size": "50M",
        "log_files": 5,
        "live_restore": False,
    }
    assert sheet.notes["docker", "memory"] == "the default: the nodes have none"


def test_an_empty_answer_about_the_ceiling_of_containers_is_not_taken_for_none(found: World) -> None:
    found.say("spark1", "docker.memory", "\n")
    found.say("spark2", "docker.memory", str(90 << 30))
    assert found.adopted().options(DockerOptions).memory == "90G"
    assert "nodes.spark1: docker.memory: unknown: is empty" in reported(found)


def test_an_unknown_option_of_docker_is_not_taken_for_off(found: World) -> None:
    found.say("spark1", "docker.live_restore", code=2)
    found.say("spark2", "docker.live_restore", '"live-restore": true')
    assert found.adopted().options(DockerOptions).live_restore
    assert "docker.live_restore: spark1 has none, the file has true" in reported(found)


def test_an_image_is_declared_when_all_nodes_have_the_same_bytes_under_a_pinned_name(found: World) -> None:
    row = "{} {} {} {} 12GB"
    other = "sha256:" + "b" * 64
    both(found, "images", row.format(ID, "a/same", "1.0", ID), row.format(ID, "a/moves", "latest", ID))
    assert found.adopted().images == ("a/same:1.0",)
    assert "images: a/moves:latest is not pinned" in reported(found)
    found.say("spark2", "images", row.format(other, "a/same", "1.0", other), row.format(ID, "a/one", "2", ID))
    assert found.adopted().images == ()
    assert "images: a/same:1.0 is not the same image on all nodes" in reported(found)
    assert "images: a/one:2 is on spark2 only" in reported(found)


@pytest.mark.parametrize(
    "line", ["passwordauthentication yes", "permitrootlogin prohibit-password", "kbdinteractiveauthentication yes"]
)
def test_hardening_is_off_where_a_way_in_is_open(found: World, line: str) -> None:
    assert found.adopted().access.hardening
    lines = found.nodes["spark2"]["sshd"].lines
    found.say("spark2", "sshd", *(line if line.split()[0] == one.split()[0] else one for one in lines))
    assert not found.adopted().access.hardening


def test_what_a_node_did_not_report_is_reported(found: World) -> None:
    found.say("spark1", "images", "no engine")
    found.say("spark1", "driver", code=127)
    assert "nodes.spark1: images: unknown: docker does not run" in reported(found)
    assert "nodes.spark1: driver: unknown: its tool ended with 127" in reported(found)

"""How nodes are kept: what most of them have, and who has something else."""

from __future__ import annotations

import pytest

from tests.unit.fleet.racks import SWITCH, loaded

from .worlds import ID, PACKAGES, World, world


@pytest.fixture
def found() -> World:
    return world(loaded(SWITCH))


def told(found: World) -> str:
    return "\n".join(str(gap) for gap in found.sheet().beyond)


def both(found: World, question: str, *lines: str) -> None:
    for node in found.nodes:
        found.say(node, question, *lines)


def test_memory_is_as_it_is_live(found: World) -> None:
    both(found, "swap", "Filename Type Size Used Priority", "/swap.img file 16777212 0 -2")
    both(found, "minfree", "45155")
    both(found, "overcommit", "1")
    memory = found.adopted().memory
    assert (memory.swap, memory.min_free_kbytes, memory.overcommit_memory) == (True, 45155, 1)
    assert told(found) == ""


def test_who_differs_is_told(found: World) -> None:
    found.say("spark2", "minfree", "45155")
    assert found.adopted().memory.min_free_kbytes == 1572864
    assert told(found) == "memory.min_free_kbytes: spark2 has 45155, the file says 1572864"


def test_what_the_file_cannot_say_is_told(found: World) -> None:
    both(found, "overcommit", "2")
    assert found.adopted().memory.overcommit_memory == 0
    assert told(found) == "memory.overcommit_memory: is 2 on the nodes, which the file cannot say"


@pytest.mark.parametrize(
    ("packages", "why"),
    [
        (
            (PACKAGES[0].replace("hold", "install"), *PACKAGES[1:]),
            "1 packages are not held, like nvidia-driver-580-open",
        ),
        ((PACKAGES[0].replace("580.159", "580.142"), *PACKAGES[1:]), "its packages are not those of driver 580.159.03"),
        (PACKAGES[:2], "its packages are not those of driver 580.159.03"),
        ((), "driver, kernel or their packages cannot be told"),
    ],
)
def test_a_driver_is_declared_only_when_it_is_installed_loaded_and_held(
    found: World, packages: tuple[str, ...], why: str
) -> None:
    assert found.adopted().driver
    found.say("spark2", "packages", *packages)
    assert found.adopted().driver is None
    assert f"driver: spark2: {why}" in told(found)
    found.say("spark2", "packages", *PACKAGES)
    found.say("spark2", "kernel", "6.17.0-1014-nvidia")
    assert found.adopted().driver is None


def test_a_kernel_that_no_package_can_have_is_not_declared(found: World) -> None:
    both(found, "kernel", "6.17.0-1021-Custom")
    assert found.adopted().driver is None
    assert "driver: spark1: driver.kernel: 6.17.0-1021-Custom is not a kernel as packages name it" in told(found)


def test_docker_is_as_it_is_and_defaults_are_marked(found: World) -> None:
    both(found, "daemon", '"max-size" : "20m"', '"max-file":"3"', '"live-restore": true')
    both(found, "ceiling", str(90 << 30))
    docker = found.adopted().docker
    assert (docker.memory, docker.log_size, docker.log_files, docker.live_restore) == ("90G", "20M", 3, True)
    both(found, "daemon")
    both(found, "ceiling", "infinity")
    sheet = found.sheet()
    assert sheet.data["docker"] == {"memory": "100G", "log_size": "50M", "log_files": 5, "live_restore": False}
    assert sheet.notes["docker", "memory"] == "the default: the nodes have none"


def test_an_image_is_declared_when_all_nodes_have_the_same_bytes_under_a_pinned_name(found: World) -> None:
    row = "{} {} {} {} 12GB"
    other = "sha256:" + "b" * 64
    both(found, "images", row.format(ID, "a/same", "1.0", ID), row.format(ID, "a/moves", "latest", ID))
    assert found.adopted().images == ("a/same:1.0",)
    assert "images: a/moves:latest is not pinned" in told(found)
    found.say("spark2", "images", row.format(other, "a/same", "1.0", other), row.format(ID, "a/one", "2", ID))
    assert found.adopted().images == ()
    assert "images: a/same:1.0 is not the same image on all nodes" in told(found)
    assert "images: a/one:2 is on spark2 only" in told(found)


@pytest.mark.parametrize(
    "line", ["passwordauthentication yes", "permitrootlogin prohibit-password", "kbdinteractiveauthentication yes"]
)
def test_hardening_is_off_where_a_way_in_is_open(found: World, line: str) -> None:
    assert found.adopted().access.hardening
    lines = found.nodes["spark2"]["sshd"].lines
    found.say("spark2", "sshd", *(line if line.split()[0] == one.split()[0] else one for one in lines))
    assert not found.adopted().access.hardening


def test_what_a_node_did_not_tell_is_told(found: World) -> None:
    found.say("spark1", "images", "no engine")
    found.say("spark1", "driver", code=127)
    assert "nodes.spark1: images cannot be told: docker does not run" in told(found)
    assert "nodes.spark1: driver cannot be told: its tool ended with 127" in told(found)

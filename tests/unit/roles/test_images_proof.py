"""The proof of the images role on nodes like real ones: it passes there, and each thing broken fails it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.model.image_lock import Pin
from roles.images import verify
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Check, Machine, checks, function_of, reported

RACK = loaded(SWITCH + "images: [x:1, docker.io/y:1]\n")
A, B, C = (f"sha256:{digit * 64}" for digit in "abc")
LOCK = {"x:1": Pin(None, A), "docker.io/y:1": Pin(None, B)}
IMAGES = {"x:1": {"Id": A, "RootFS": {"Layers": [A, C]}}, "y:1": {"Id": B, "RootFS": {"Layers": [B]}}}
DOCKER = """\
case $1 in
image) cat "@ROOT@/images/$3" || { echo "no such image" >&2; exit 1; } ;;
version) echo "Client: 28.1"; echo "Server: 28.1" ;;
esac
"""


def node(root: Path) -> Path:
    for name, image in IMAGES.items():
        write(root, f"/images/{name}", json.dumps([{"RepoTags": [name], **image}], indent=2) + "\n")
    stand_in(root, "docker", DOCKER.replace("@ROOT@", str(root)))
    stand_in(root, "systemctl")
    return root


def two_nodes(root: Path) -> Path:
    node(root / "other")
    return node(root)


def faults(check: Check, root: Path, lock: dict[str, Pin] = LOCK, node_name: str = "spark1") -> list[str]:
    """What the check reports about a node; of two, spark2 is in the folder `other`."""
    machines = {"spark1": Machine(root), "spark2": Machine(root / "other")}
    return reported(
        check,
        root,
        RACK,
        lock=lock,
        node=RACK.nodes[node_name],
        machines=machines,
        machine=machines[node_name],
        limited=frozenset(machines),
    )


@pytest.mark.parametrize("name", ["spark1", "spark2"])
@pytest.mark.parametrize(("check", "values"), checks(verify))
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check, values: dict[str, object], name: str) -> None:
    assert values == {}
    assert faults(check, two_nodes(tmp_path), node_name=name) == []


def test_an_image_that_is_not_in_the_lock_file_fails(tmp_path: Path) -> None:
    assert faults(verify.test_each_image_is_what_the_lock_file_says, node(tmp_path), {"x:1": LOCK["x:1"]}) == [
        "spark1: rack.lock.json does not have docker.io/y:1; run the deploy"
    ]


def test_an_image_with_another_id_fails(tmp_path: Path) -> None:
    assert faults(verify.test_each_image_is_what_the_lock_file_says, node(tmp_path), {**LOCK, "x:1": Pin(None, C)}) == [
        f"spark1: x:1 is {A}, wanted {C}"
    ]


def test_an_image_that_is_missing_fails(tmp_path: Path) -> None:
    (node(tmp_path) / "images/y:1").unlink()
    assert faults(verify.test_each_image_is_what_the_lock_file_says, tmp_path) == [
        f"spark1: y:1 is missing, wanted {B}"
    ]


@pytest.mark.parametrize(("said", "why"), [("echo 'no daemon' >&2; ", "no daemon"), ("", "no reason given")])
def test_an_engine_that_does_not_answer_fails(tmp_path: Path, said: str, why: str) -> None:
    stand_in(two_nodes(tmp_path), "docker", f"{said}exit 1")
    for check in (
        verify.test_each_image_is_what_the_lock_file_says,
        verify.test_each_image_has_the_same_layers_everywhere,
    ):
        assert faults(check, tmp_path) == [f"docker does not answer: {why}"]


def test_other_layers_of_the_same_name_fail(tmp_path: Path) -> None:
    image = {"RepoTags": ["x:1"], "Id": A, "RootFS": {"Layers": [C, A]}}
    write(two_nodes(tmp_path) / "other", "/images/x:1", json.dumps([image]))
    check = verify.test_each_image_has_the_same_layers_everywhere
    assert faults(check, tmp_path, node_name="spark2") == ["spark2: x:1 has other layers than on spark1"]


def test_an_image_that_one_node_lacks_cannot_be_compared(tmp_path: Path) -> None:
    check = verify.test_each_image_has_the_same_layers_everywhere
    (two_nodes(tmp_path) / "other/images/y:1").unlink()
    assert faults(check, tmp_path, node_name="spark2") == ["spark2: y:1 is missing"]
    (tmp_path / "images/x:1").unlink()
    assert faults(check, tmp_path, node_name="spark2") == [
        "spark1: x:1 is missing, so spark2 cannot be compared with it"
    ]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "case $* in *sparkrack-image-*) echo 'sparkrack-image-0.service loaded active running x';; esac",
            "images are still being fetched: sparkrack-image-0.service",
        ),
        ("echo 'no bus' >&2; exit 1", "systemctl: no bus"),
    ],
)
def test_a_transfer_that_runs_fails(tmp_path: Path, script: str, says: str) -> None:
    stand_in(node(tmp_path), "systemctl", script)
    assert faults(verify.test_nothing_is_on_its_way, tmp_path) == [f"spark1: {says}"]


def test_a_rack_without_images_is_skipped() -> None:
    function_of(verify._only_if_declared)(RACK)
    with pytest.raises(pytest.skip.Exception, match="declares no images"):
        function_of(verify._only_if_declared)(loaded(SWITCH))

"""`sparkrack check`: what applies without being written, and each warning about a rack file comes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import image_lock
from core.model.image_lock import ImageNccl, Pin
from sparkrack.check.check_rack_file import check_rack_file
from tests.unit.cli.runs import command
from tests.unit.model.serving_racks import IMAGE_ID, QWEN, VLLM, machines, put, text, unit

SMALLEST = "nodes:\n  spark1: {address: 10.77.0.11, ports: {1: spark2/1}}\n  spark2: {address: 10.77.0.12}\n"
USER = f"access: {{user: ops}}\n{SMALLEST}"
"""The tests may run as root, who is not a user of nodes."""
HELD = 'driver: {version: "580.159"}\n'


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder, and the home of an operator with a key."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id_ecdsa").touch()
    (tmp_path / "desk").mkdir()
    return tmp_path / "desk"


def checked(desk: Path, text: str) -> tuple[list[str], list[str]]:
    """The lines of stdout and of stderr for a file that is good."""
    (desk / "rack.yaml").write_text(text)
    ended = command("sparkrack", "check", cwd=desk, HOME=str(desk.parent / "home"))
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines(), ended.stderr.splitlines()


def test_each_default_is_shown_with_where_it_comes_from(desk: Path) -> None:
    shown, _ = checked(desk, USER)
    first, second = shown
    assert first.startswith("rack.yaml: OK: desk has 2 nodes, 0 switches and 1 cable")
    assert second == (
        "not written: rack desk (folder), key id_ecdsa (in ~/.ssh), known_hosts known_hosts (beside the file), "
        "subnets 192.168.100.0/24 and 192.168.101.0/24, vendor of spark1, spark2 (any)"
    )


def test_a_file_that_writes_all_has_no_line_of_defaults(desk: Path) -> None:
    whole = USER.replace("user: ops", "user: ops, key: ~/.ssh/id_ecdsa, known_hosts: known_hosts").replace(
        "address", "vendor: asus, address"
    )
    shown, _ = checked(desk, f"rack: pair\n{whole}fabric: {{pool: 10.100.0.0/20}}\n")
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("more", "warnings"), [("", 1), (HELD, 0), ("driver: {hold: true}\n", 0), ("leave: [driver]\n", 0)]
)
def test_a_rack_that_holds_no_driver_is_warned_about_once(desk: Path, more: str, warnings: int) -> None:
    _, warned = checked(desk, USER + more)
    lines = [line for line in warned if "nothing is held" in line]
    assert len(lines) == warnings
    assert all(line.startswith("warning: rack.yaml:1: driver: nothing is held, so an update") for line in lines)


@pytest.mark.parametrize(
    ("declared", "key", "row"),
    [
        ('{version: "590.48.01"}', "version", "driver.590-graphs"),
        ('{version: "580.159", kernel: 7.0.0-1019-nvidia}', "kernel", "kernel.kexec-handover"),
    ],
)
def test_what_is_known_against_a_declared_version_is_warned_of(desk: Path, declared: str, key: str, row: str) -> None:
    _, warned = checked(desk, f"{USER}driver: {declared}\n")
    (line,) = (line for line in warned if row in line)
    assert f" driver.{key}: " in line, line
    assert line.endswith(f"({row}, docs/reference/advisories.md)")


def test_a_key_that_is_not_there_is_a_warning_with_the_command_that_makes_one(desk: Path) -> None:
    assert not [line for line in checked(desk, USER + HELD)[1] if "warning" in line]
    (desk.parent / "home/.ssh/id_ecdsa").unlink()
    key = desk.parent / "home/.ssh/id_ed25519"
    (line,) = (line for line in checked(desk, USER + HELD)[1] if "warning" in line)
    assert line == f"warning: rack.yaml:1: access.key: {key} is not there; make one: ssh-keygen -t ed25519 -f {key}"


def test_nccl_of_an_image_is_judged_by_the_lock_file(tmp_path: Path) -> None:
    """Without a connection: a ring of four whose image has an older NCCL, of a build that is known to hang."""
    four: dict[str, Any] = {"nodes": ["n0", "n1", "n2", "n3"], "parallel": {"tensor": 1, "pipeline": 4}}
    path = put(tmp_path, text({"qwen": unit(QWEN, **four)}, machines(4, "ring")))
    lock = path.with_name("rack.lock.json")
    lines = [line for line in check_rack_file(path).warnings if "NCCL" in line]
    assert [line.partition(": ")[2] for line in lines] == [
        (
            f"serving.units.qwen.image: NCCL of {VLLM} is not known yet: the lock file does not have it; "
            "`sparkrack apply --only images` asks the image and records it"
        ),
        (
            "serving.units.qwen.nodes: no cable joins n0 and n2, n1 and n3: NCCL before 2.30 does not connect such "
            "ranks (reported); take an image with NCCL 2.30 or later, or with a mesh plugin"
        ),
    ]
    image_lock.write(lock, {VLLM: Pin(None, IMAGE_ID, ImageNccl("2.28.9", "wheel", ()))})
    found = "\n".join(check_rack_file(path).warnings)
    assert "qwen.image: NCCL 2.28.9 of the image: two ranks spin for ever" in found
    assert "n1 and n3: NCCL 2.28.9 of the image does not connect such ranks (reported)" in found
    image_lock.write(lock, {VLLM: Pin(None, IMAGE_ID, ImageNccl("2.30.7", "wheel", ()))})
    assert not [line for line in check_rack_file(path).warnings if "NCCL" in line]
    lock.write_text('{"images": {"x:1": {"digest": null}}}')
    assert any(
        "rack.lock.json: images.x:1: is not a mapping of digest and id" in line
        for line in check_rack_file(path).warnings
    )

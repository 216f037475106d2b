"""`sparkrack remove` after everything: /etc, units, packages and the switch as before the first apply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import black_box
from tests.lab.virtual import REPOSITORY, VirtualRack

pytestmark = pytest.mark.soak(turn=13)

NODES = ("spark1", "spark2")
SECTIONS = (
    black_box.SECTION,
    "watch: {server: spark1, notify: {webhook: {env: WATCH_WEBHOOK}}}\n",
    "time: {ntp: [10.77.0.1], time_zone: Europe/Berlin}\n",
)
ETC = (
    "cd /etc; find . -type f -print0 | sort -z | xargs -0 sha256sum; find . ! -type f -printf '%y %p %l\\n' | sort; "
    "find . ! -type l -printf '%m %u:%g %p\\n' | sort"
)
UNITS = "systemctl list-unit-files --no-legend --no-pager | awk '{print $1, $2}' | sort"
RUNNING = "systemctl list-units --plain --no-legend --no-pager --state=active --type=service,timer,socket,swap,slice | "
RUNNING += "awk '{print $1}' | grep -v '^user' | sort"
PACKAGES = "dpkg-query -W; apt-mark showhold; apt-mark showauto"
OURS = "ls -d /etc/sparkrack /usr/local/lib/sparkrack /var/lib/sparkrack/* /var/backups/sparkrack 2> /dev/null || true"
EXPLAINED = {
    "./group-": "the copy that gpasswd makes of the former file, a day old at most",
    "./gshadow-": "the same",
}
"""Files of /etc that differ, and why that is not a fault."""


def state(rack: VirtualRack) -> dict[str, dict[str, set[str]]]:
    """What is compared, by node and by kind."""
    asked = {"etc": ETC, "units": UNITS, "running": RUNNING, "packages": PACKAGES}
    return {node: {kind: set(rack.ssh(node, script).splitlines()) for kind, script in asked.items()} for node in NODES}


def differences(before: set[str], after: set[str]) -> list[str]:
    """The lines that differ, without those that are explained."""
    changed = sorted([*(f"- {line}" for line in before - after), *(f"+ {line}" for line in after - before)])
    return [line for line in changed if not any(re.search(rf"\s{re.escape(path)}(\s|$)", line) for path in EXPLAINED)]


@pytest.fixture(scope="module")
def rack() -> Iterator[VirtualRack]:
    """A lab as it comes up."""
    found = VirtualRack(REPOSITORY / ".lab-test-remove", NODES)
    found.environment["WATCH_WEBHOOK"] = "http://10.77.0.12:8099/"
    found.lab("down")
    try:
        found.lab("up", "--nodes", str(len(NODES)))
        yield found
    finally:
        found.lab("down")


@pytest.fixture(scope="module")
def file(rack: VirtualRack) -> Path:
    """The rack file with every section that a virtual node can have."""
    path = rack.folder / "everything.yaml"
    path.write_text(rack.paths.rack.read_text() + "".join(SECTIONS))
    return path


def changed(rack: VirtualRack, file: Path, *words: str) -> str:
    """A command that must end well; its output."""
    done = rack.inside("sparkrack", *words, rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_after_everything_each_node_is_as_before(rack: VirtualRack, file: Path) -> None:
    before = state(rack)
    changed(rack, file, "apply", "-y")
    assert differences(before["spark1"]["etc"], state(rack)["spark1"]["etc"])
    done = rack.inside("sparkrack", "remove", "--dry", rack=file, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    changed(rack, file, "remove", "-y")
    after = state(rack)
    found = {
        f"{node} {kind}": lines
        for node in NODES
        for kind in before[node]
        if (lines := differences(before[node][kind], after[node][kind]))
    }
    assert found == {}


def test_nothing_is_left_and_a_second_removal_changes_nothing(rack: VirtualRack, file: Path) -> None:
    left = {node: rack.ssh(node, OURS).split() for node in NODES}
    assert left == {node: ["/var/lib/sparkrack/blackbox"] for node in NODES}, "only the records of the black box"
    done = rack.inside("sparkrack", "remove", "--dry", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_apply_after_a_removal_works(rack: VirtualRack, file: Path) -> None:
    changed(rack, file, "apply", "-y")
    changed(rack, file, "plan")


def test_one_node_is_taken_off_and_the_switch_is_left_alone(rack: VirtualRack, file: Path) -> None:
    writes, other = rack.writes(), rack.etc()["spark1"]
    said = changed(rack, file, "remove", "-y", "--limit", "spark2")
    assert "spark2: " in said
    assert (rack.writes(), rack.etc()["spark1"]) == (writes, other)

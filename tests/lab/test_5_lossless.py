"""What nodes do about loss: set by a run, seen and mended when broken, back after a reboot, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=12)

ALONE = ("lossless",)
NODE, NAMES = "spark2", ("enp1s0f1np1", "enP2p1s0f1np1")
FILES = "/usr/local/lib/sparkrack/lossless /etc/systemd/system/sparkrack-lossless@.service"


def with_policy(rack: VirtualRack, policy: str) -> Path:
    """The lab's rack file with a policy on its switch, beside it."""
    file = rack.paths.rack.with_name(f"rack-{policy}.yaml")
    lines = rack.paths.rack.read_text().splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if line.strip().startswith("model:")]
    indent = lines[at][: -len(lines[at].lstrip())]
    file.write_text("".join([*lines[: at + 1], f"{indent}lossless: {policy}\n", *lines[at + 1 :]]))
    return file


@pytest.fixture(scope="module")
def pause(rack: VirtualRack) -> Iterator[Path]:
    """The rack file of a node that pauses; the last test takes it back."""
    file = with_policy(rack, "pause")
    rack.deploy("-y", "--limit", NODE, rack=file, roles=ALONE)
    yield file
    file.unlink()


def verified(rack: VirtualRack, file: Path, check: bool = True) -> str:
    return rack.verify("--limit", NODE, "--only", "lossless", rack=file, check=check).stdout


def test_a_second_run_changes_nothing(rack: VirtualRack, pause: Path) -> None:
    before = rack.ssh(NODE, "tar -c --sort=name /etc /usr/local | sha256sum")
    rack.deploy("-y", "--limit", NODE, rack=pause, roles=ALONE)
    assert rack.ssh(NODE, "tar -c --sort=name /etc /usr/local | sha256sum") == before


def test_what_was_broken_is_seen_and_fixed_and_set_again_at_boot(rack: VirtualRack, pause: Path) -> None:
    rack.ssh(
        NODE,
        f"ethtool -A {NAMES[0]} rx off; dcb pfc set dev {NAMES[1]} prio-pfc 3:on; "
        f"rm /etc/systemd/system/*.device.wants/sparkrack-lossless@{NAMES[1]}.service; systemctl daemon-reload",
    )
    seen = verified(rack, pause, check=False)
    for line in (
        f"{NODE}/{NAMES[0]}: pause is",
        f"{NODE}/{NAMES[1]}: lossless are priorities [3], wanted []",
        f"{NODE}/{NAMES[1]}: nothing brings pause back when the interface appears",
    ):
        assert line in seen
    rack.deploy("-y", "--limit", NODE, rack=pause, roles=ALONE)
    verified(rack, pause)
    rack.lab("reboot", NODE)
    ran = rack.ssh(NODE, f"systemctl show --property=ExecMainStatus,ActiveState sparkrack-lossless@{NAMES[0]}.service")
    assert "ActiveState=active" in ran
    assert rack.ssh(NODE, "systemctl --failed --no-legend --plain").strip() == ""
    verified(rack, pause)


def test_roce_is_refused_where_the_driver_cannot(rack: VirtualRack, pause: Path) -> None:
    file = with_policy(rack, "roce")
    before = rack.ssh(NODE, "tar -c --sort=name /etc /usr/local | sha256sum")
    done = rack.deploy("-y", "--limit", NODE, rack=file, check=False, roles=ALONE)
    file.unlink()
    assert done.returncode == 1
    assert f"{NAMES[0]}: roce needs ecn/roce_np/enable/3" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert rack.ssh(NODE, "tar -c --sort=name /etc /usr/local | sha256sum") == before


def test_it_is_taken_back(rack: VirtualRack, pause: Path) -> None:
    rack.ssh(NODE, f"dcb app replace dev {NAMES[0]} dscp-prio 26:3; dcb pfc set dev {NAMES[0]} prio-pfc 3:on")
    assert "is left, though no switch of the node has a policy" in verified(rack, rack.paths.rack, check=False)
    rack.deploy("-y", "--limit", NODE, roles=ALONE)
    assert rack.ssh(NODE, f"ls {FILES} /etc/systemd/system/*.device.wants/*lossless* 2>/dev/null || true") == ""
    assert rack.ssh(NODE, f"dcb -N app show dev {NAMES[0]} dscp-prio") == ""
    assert ":on" not in rack.ssh(NODE, f"dcb pfc show dev {NAMES[0]} prio-pfc")
    verified(rack, rack.paths.rack)

"""What the driver role asks of a node and does there, run by a real shell in folders like a node's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.ops import host_facts
from roles.driver import desired, driver_upgrade, facts, upgrade_blockers
from roles.driver.apply import _mask_command
from tests.unit.ops.shells import calls, rooted, run, stand_in, write

COMMANDS = host_facts._registered["driver"].commands
DPKG = """\
cat <<'E'
docker.io 29.1 hold ok installed
libnvidia-gl-535  unknown ok not-installed
nvidia-driver-580-open 580.159.03-0ubuntu1 install ok installed
nvidia-utils-580:arm64 580.159.03-0ubuntu1 install ok half-configured
E
exit 1"""


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packages(tmp_path: Path) -> None:
    """dpkg-query ends with 1 when a pattern fits nothing, which is an answer."""
    stand_in(tmp_path, "dpkg-query", DPKG)
    found = desired.packages(asked(tmp_path, facts.PACKAGES))
    assert [one.bare for one in found if one.installed] == ["docker.io", "nvidia-driver-580-open"]
    assert [one.bare for one in found if one.there][2:] == ["nvidia-utils-580"]
    assert calls(tmp_path)[-1].endswith(" ".join(desired.HELD))  # as they are, not as this shell finds files for them


@pytest.mark.parametrize("code", [2, 127])
def test_packages_that_cannot_be_read_are_unknown(tmp_path: Path, code: int) -> None:
    stand_in(tmp_path, "dpkg-query", f"exit {code}")
    assert run(COMMANDS[facts.PACKAGES], tmp_path).returncode != 0


def test_the_real_dpkg_understands_the_question(tmp_path: Path) -> None:
    done = subprocess.run(["/bin/sh", "-c", desired.listed()], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("this machine has no dpkg")
    desired.packages(done.stdout)


def test_units(tmp_path: Path) -> None:
    write(tmp_path, "/usr/lib/systemd/system/apt-daily.timer")
    write(tmp_path, "/usr/lib/systemd/system/apt-daily.service")
    write(tmp_path, "/usr/lib/systemd/system/packagekit-offline-update.service")
    write(tmp_path, "/usr/lib/systemd/system/nvidia-spark-ota-check.timer")
    write(tmp_path, "/usr/lib/systemd/system/dgx-spark-ota-update.service")
    write(tmp_path, "/usr/lib/systemd/system/ssh.service")
    write(tmp_path, "/etc/systemd/system/fwupd-refresh.timer")
    (tmp_path / "etc/systemd/system/apt-daily.timer").symlink_to("/dev/null")
    listing = asked(tmp_path, facts.UNITS).replace(str(tmp_path), "")
    assert [unit.name for unit in upgrade_blockers.to_mask(listing)] == [
        "dgx-spark-ota-update.service",
        "fwupd-refresh.timer",
        "nvidia-spark-ota-check.timer",
        "packagekit-offline-update.service",
    ]


def test_a_bare_node_answers_with_nothing(tmp_path: Path) -> None:
    stand_in(tmp_path, "dpkg-query", "exit 1")
    stand_in(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert [asked(tmp_path, key) for key in (facts.PACKAGES, facts.UNITS, facts.LOADED)] == ["", "", ""]


def test_the_loaded_driver(tmp_path: Path) -> None:
    stand_in(tmp_path, "nvidia-smi", "echo 580.159.03; echo 580.159.03")
    assert asked(tmp_path, facts.LOADED) == "580.159.03\n580.159.03\n"
    write(tmp_path, "/sys/module/nvidia/version", "580.173.02\n")
    assert asked(tmp_path, facts.LOADED) == "580.173.02\n"


def test_masking_keeps_what_stands_in_its_place(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemctl")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/locks").touch()
    write(tmp_path, "/etc/systemd/system/x.service", "a person's")
    unit = upgrade_blockers.UpgradeUnit("x.service", False, "/etc/systemd/system/x.service")
    (tmp_path / "var").mkdir()
    for _ in range(2):
        done = run(_mask_command([unit, upgrade_blockers.UpgradeUnit("y.timer", False)]), tmp_path)
        assert done.returncode == 0, done.stderr
    assert calls(tmp_path)[:4] == [
        "systemctl stop x.service y.timer",
        "systemctl --no-reload mask --quiet x.service y.timer",
        "systemctl daemon-reload",
        "systemctl stop x.service y.timer",
    ]
    assert (tmp_path / "var/backups/sparkrack/x.service").read_text() == "a person's"
    assert not (tmp_path / "etc/systemd/system/x.service").exists()


def test_holding_all_by_patterns(tmp_path: Path) -> None:
    stand_in(tmp_path, "dpkg-query", DPKG)
    stand_in(tmp_path, "apt-mark")
    assert run(f"set -eu; {desired.hold_all()}", tmp_path).returncode == 0
    assert calls(tmp_path)[-1] == "apt-mark hold nvidia-driver-580-open"


@pytest.mark.parametrize("install", ["true", "false", "exit 3", "kill -TERM $$; sleep 0.2"])
def test_a_release_holds_again_whatever_becomes_of_it(tmp_path: Path, install: str) -> None:
    stand_in(tmp_path, "dpkg-query", DPKG)
    stand_in(tmp_path, "apt-mark")
    done = run(driver_upgrade.perform(":", f"echo installing >> {tmp_path}/calls; {install}", ["a", "b"]), tmp_path)
    assert (done.returncode == 0) == (install == "true")
    noted = [call for call in calls(tmp_path) if call.startswith(("apt-mark", "installing"))]
    assert noted == ["apt-mark unhold a b", "installing", "apt-mark hold nvidia-driver-580-open"]


@pytest.mark.parametrize(
    ("scope", "populated", "runs"), [(False, None, False), (False, 0, False), (False, 1, True), (True, None, True)]
)
def test_what_runs(tmp_path: Path, scope: bool, populated: int | None, runs: bool) -> None:
    stand_in(tmp_path, "docker", "echo vllm")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    if scope:
        (tmp_path / "sys/fs/cgroup/system.slice/docker-1a.scope").mkdir(parents=True)
    if populated is not None:
        write(tmp_path, "/sys/fs/cgroup/sparkrack.slice/cgroup.events", f"populated {populated}\nfrozen 0\n")
    done = run(driver_upgrade.RUNNING, tmp_path)
    assert (done.returncode, done.stdout) == (0, "vllm\n\n" if runs else "")


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in (*COMMANDS.values(), driver_upgrade.RUNNING):
        for top in ("/etc/", "/run/", "/usr/lib/", "/usr/local/lib/", "/sys/", "/var/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")

"""The proof of the driver role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.driver import upgrade_blockers, verify
from roles.driver.options import DriverOptions
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import calls, stand_in, write
from tests.unit.roles.checked_node import Check, checks, reported

KERNEL = "6.17.0-1021-nvidia"
RACK = loaded(
    changed(SWITCH, ("rack: two", f'rack: two\ndriver: {{version: "580.159", kernel: {KERNEL}}}')),
)
DRIVER = RACK.options(DriverOptions)
DPKG = """\
Desired=Unknown/Install/Remove/Purge/Hold
||/ Name                           Version               Architecture Description
+++-==============================-=====================-============-===========
ii  bash                           5.2.21-2ubuntu4       arm64        GNU Bourne Again SHell
hi  nvidia-driver-580-open         580.159.03-0ubuntu1   arm64        NVIDIA driver
hi  libnvidia-compute-580:arm64    580.159.03-0ubuntu1   arm64        NVIDIA libcompute
hi  linux-image-6.17.0-1021-nvidia 6.17.0-1021.21        arm64        Linux kernel image
rc  nvidia-utils-570               570.100-0ubuntu1      arm64        configuration that is left
un  nvidia-utils-580               <none>                <none>       (no description available)
"""
HOLDS = "echo nvidia-driver-580-open; echo libnvidia-compute-580:arm64; echo linux-image-6.17.0-1021-nvidia"
UPGRADE = "echo 'Inst bash [5.2.21-2ubuntu4] (5.2.21-2ubuntu5 Ubuntu [arm64])'; echo 'Conf bash'"
SYSTEMCTL = """\
case "$*" in
list-unit-files*) echo "apt-daily.timer masked enabled"; echo "fwupd-refresh.timer masked enabled" ;;
esac
"""
PERIODIC = "\n".join(f"echo \"v{number}='0'\"" for number in range(len(upgrade_blockers.PERIODIC)))
UNKNOWN_PROGRAM = "echo 'not found' >&2; exit 127"


def node(root: Path) -> Path:
    stand_in(root, "dpkg", f"cat << 'END'\n{DPKG}END")
    stand_in(root, "apt-mark", HOLDS)
    stand_in(root, "apt-get", UPGRADE)
    stand_in(root, "systemctl", SYSTEMCTL)
    stand_in(root, "apt-config", PERIODIC)
    stand_in(root, "uname", f"echo {KERNEL}")
    stand_in(root, "nvidia-smi", "echo 580.159.03")
    return root


def faults(check: Check, root: Path) -> list[str]:
    return [text.removeprefix("spark1: ") for text in reported(check, root, RACK, driver=DRIVER)]


@pytest.mark.parametrize(("check", "values"), checks(verify))
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check, values: dict[str, object]) -> None:
    assert values == {}
    assert faults(check, node(tmp_path)) == []


PACKAGES = [
    (
        verify.test_the_declared_driver_is_installed,
        *("hi  nvidia-driver-580-open ", "hi  nvidia-kernel-580-open "),
        ["no nvidia-driver-580-open"],
    ),
    (
        verify.test_the_declared_driver_is_installed,
        *("libnvidia-compute-580:arm64    580.159.03", "libnvidia-compute-580:arm64    580.160.01"),
        ["libnvidia-compute-580 is 580.160.01-0ubuntu1, wanted 580.159"],
    ),
    (
        verify.test_the_declared_driver_is_installed,
        *("hi  nvidia-driver", "hU  nvidia-driver"),
        ["nvidia-driver-580-open is only half installed (dpkg -l: hU)"],
    ),
    (
        verify.test_the_declared_driver_is_installed,
        *("hi  nvidia-driver", "hiR nvidia-driver"),
        ["nvidia-driver-580-open is only half installed (dpkg -l: hiR)"],
    ),
    (
        verify.test_what_must_not_move_is_on_hold,
        *("rc  nvidia-utils-570", "ii  nvidia-utils-570"),
        ["nvidia-utils-570 is not on hold"],
    ),
]


@pytest.mark.parametrize(("check", "old", "new", "says"), PACKAGES)
def test_what_dpkg_lists(tmp_path: Path, check: Check, old: str, new: str, says: list[str]) -> None:
    stand_in(node(tmp_path), "dpkg", f"cat << 'END'\n{changed(DPKG, (old, new))}END")
    assert faults(check, tmp_path) == says


TOOLS: dict[tuple[Check, str], dict[str, str]] = {
    (verify.test_the_declared_driver_is_installed, "dpkg"): {
        "echo 'cannot read the database' >&2; exit 2": "dpkg: cannot read the database",
    },
    (verify.test_what_must_not_move_is_on_hold, "apt-mark"): {
        HOLDS.replace("libnvidia-compute-580:arm64", "bash"): "libnvidia-compute-580 is not on hold",
        UNKNOWN_PROGRAM: "apt-mark: not found",
    },
    (verify.test_a_full_upgrade_moves_nothing_of_it, "apt-get"): {
        "echo 'Inst nvidia-driver-580-open [580.159.03] (580.160.01 NVIDIA [arm64])'": (
            "a full upgrade would move nvidia-driver-580-open"
        ),
        "echo 'Remv docker-ce [28.1]'": "a full upgrade would move docker-ce",
        "echo 'E: broken packages' >&2; exit 100": "apt-get -s full-upgrade: E: broken packages",
    },
    (verify.test_no_unit_upgrades_the_node, "systemctl"): {
        SYSTEMCTL.replace(
            "apt-daily.timer masked", "apt-daily.timer enabled"
        ): "apt-daily.timer is enabled, wanted masked",
        f"{SYSTEMCTL}case $1 in list-units) echo 'packagekit.service loaded active running x';; esac": (
            "packagekit.service runs"
        ),
        "case $1 in list-unit-files) echo 'no bus' >&2; exit 4;; esac": "systemctl: no bus",
        "case $1 in list-units) echo 'no bus' >&2; exit 1;; esac": "systemctl: no bus",
    },
    (verify.test_apt_upgrades_nothing_by_itself, "apt-config"): {
        PERIODIC.replace("v3='0'", "v3='1'"): "APT::Periodic::Unattended-Upgrade is 1 for apt, wanted 0",
        PERIODIC.replace("v0='0'", ""): "APT::Periodic::Enable is not set for apt, wanted 0",
        f"{PERIODIC}\necho 'E: syntax error' >&2; exit 100": "apt-config: E: syntax error",
    },
    (verify.test_the_declared_kernel_runs, "uname"): {
        "echo 6.17.0-1008-nvidia": f"kernel 6.17.0-1008-nvidia runs, wanted {KERNEL}; reboot required",
        UNKNOWN_PROGRAM: "uname: not found",
    },
    (verify.test_the_declared_driver_is_loaded, "nvidia-smi"): {
        "echo 'Driver/library version mismatch'; exit 18": (
            "nvidia-smi does not reach the driver; reboot required: Driver/library version mismatch"
        ),
        UNKNOWN_PROGRAM: "nvidia-smi does not reach the driver; reboot required: not found",
        "exit 0": "nvidia-smi names no driver",
        "echo 580.159.03; echo 570.100": "driver 570.100 is loaded, wanted 580.159",
    },
}


@pytest.mark.parametrize(
    ("check", "tool", "script", "says"),
    [(*key, *answer) for key, answers in TOOLS.items() for answer in answers.items()],
)
def test_what_a_tool_says(tmp_path: Path, check: Check, tool: str, script: str, says: str) -> None:
    stand_in(node(tmp_path), tool, script)
    assert faults(check, tmp_path) == [says]


def test_a_loaded_driver_without_the_revision_of_its_package_passes(tmp_path: Path) -> None:
    whole = DRIVER.model_copy(update={"version": "580.159.03-0ubuntu1"})
    assert reported(verify.test_the_declared_driver_is_loaded, node(tmp_path), RACK, driver=whole) == []


HELD_AS_IT_IS = DriverOptions(hold=True)


def test_a_loaded_driver_is_the_installed_one_where_no_version_is_declared(tmp_path: Path) -> None:
    check = verify.test_the_declared_driver_is_loaded
    assert reported(check, node(tmp_path), RACK, driver=HELD_AS_IT_IS) == []
    stand_in(tmp_path, "nvidia-smi", "echo 580.142")
    assert reported(check, tmp_path, RACK, driver=HELD_AS_IT_IS) == [
        "spark1: driver 580.142 is loaded, wanted 580.159.03-0ubuntu1"
    ]
    stand_in(tmp_path, "dpkg", "echo 'ii  bash  5.2.21-2ubuntu4  arm64  shell'")
    (unknown,) = reported(check, tmp_path, RACK, driver=HELD_AS_IT_IS)
    assert unknown.startswith("spark1: dpkg lists no package that pulls in the driver")


def test_a_node_without_a_unit_that_upgrades_passes(tmp_path: Path) -> None:
    """systemctl of systemd 257 ends with 1 when it lists none."""
    stand_in(node(tmp_path), "systemctl", "case $1 in list-unit-files) exit 1;; esac")
    assert faults(verify.test_no_unit_upgrades_the_node, tmp_path) == []


def test_systemd_is_asked_for_each_unit_that_upgrades(tmp_path: Path) -> None:
    faults(verify.test_no_unit_upgrades_the_node, node(tmp_path))
    for call in calls(tmp_path):
        assert call.endswith(" ".join(upgrade_blockers.SELF_UPGRADING))
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize(
    ("packages", "names"), [("linux-base\nlinux-base\nlibc6\n", "linux-base, libc6"), (None, "a package")]
)
def test_a_reboot_that_a_package_asks_for_fails(tmp_path: Path, packages: str | None, names: str) -> None:
    write(node(tmp_path), "/var/run/reboot-required")
    if packages is not None:
        write(tmp_path, "/var/run/reboot-required.pkgs", packages)
    assert faults(verify.test_no_reboot_is_asked_for, tmp_path) == [f"reboot required, asked for by {names}"]


def test_a_kernel_that_is_not_declared_is_not_checked(tmp_path: Path) -> None:
    without = DRIVER.model_copy(update={"kernel": None})
    assert reported(verify.test_the_declared_kernel_runs, tmp_path, RACK, driver=without) == [
        "skipped: rack.yaml declares no kernel"
    ]


def test_a_rack_without_a_driver_skips_its_checks_and_says_so() -> None:
    fixture: Any = verify.driver
    fetch = getattr(fixture, "_get_wrapped_function", lambda: fixture.__wrapped__)()
    with pytest.raises(pytest.skip.Exception, match=r"^rack\.yaml declares no driver$"):
        fetch(loaded(SWITCH))
    assert fetch(RACK) == DRIVER

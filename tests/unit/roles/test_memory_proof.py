"""The proof of the memory role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.model import CONTAINER_SLICE, Rack
from roles.memory import memory_gate, verify
from roles.memory.cgroups import CGROUPS, GUARD, SYSTEM
from roles.memory.daemon_protection import DAEMONS, MEBIBYTE, SUM
from roles.memory.memory_guard import SCRIPT
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Check, checks, function_of, reported

RACK = loaded(SWITCH)
UNGUARDED = loaded(changed(SWITCH, ("  swap: false", "  swap: true\n  floor: false")))
FLOOR = 3 * 1024**2
LIMIT, RESERVED = str(100 * 1024**3), str(SUM * MEBIBYTE)
MEMINFO = f"MemTotal: 125000000 kB\nMemAvailable: {FLOOR} kB\nSwapTotal: 0 kB\n"
SYSCTL_D = (
    "vm.min_free_kbytes = 65536\n# vm.min_free_kbytes = 1\nvm/min_free_kbytes=1572864\n-vm.overcommit_memory = 0\n"
)
SHOWN = {
    CONTAINER_SLICE: f"ActiveState=active\nUnitFileState=enabled\nMemoryMax={LIMIT}\nMemorySwapMax=0\nDropInPaths=\n",
    GUARD: "ActiveState=active\nUnitFileState=enabled\nMainPID=50\nNRestarts=0\nLoadState=loaded\n"
    "DropInPaths=/etc/systemd/system/service.d/10-all.conf\n",
    SYSTEM: f"MemoryMin={RESERVED}\n",
    **{
        daemon.unit: f"ActiveState=active\nMemoryMin={daemon.keep * MEBIBYTE}\nOOMScoreAdjust={daemon.score}\n"
        f"MainPID={number}\n"
        for number, daemon in enumerate(DAEMONS, 60)
    },
    "listed": "swap.target masked disabled\ndev-sda3.swap masked -\n",
}
"""What systemd shows of each unit, and the list of its swap units."""
SSH, NETWORK = DAEMONS[0], DAEMONS[1]


def node(root: Path) -> Path:
    for unit, text in SHOWN.items():
        write(root, f"/shown/{unit}", text)
    write(root, "/proc/meminfo", MEMINFO)
    write(root, "/proc/50/oom_score_adj", "-1000\n")
    write(root, f"{CGROUPS}/{CONTAINER_SLICE}/memory.max", f"{LIMIT}\n")
    write(root, f"{CGROUPS}/{CONTAINER_SLICE}/memory.swap.max", "0\n")
    write(root, f"{CGROUPS}/{SYSTEM}/memory.min", f"{RESERVED}\n")
    for number, daemon in enumerate(DAEMONS, 60):
        write(root, f"/proc/{number}/oom_score_adj", f"{daemon.score}\n")
        write(root, f"{CGROUPS}/{SYSTEM}/{daemon.unit}/memory.min", f"{daemon.keep * MEBIBYTE}\n")
    write(root, "/sys/block/zram0/disksize", "0\n")
    write(root, memory_gate.SCRIPT, memory_gate.script(RACK).content.decode()).chmod(0o755)
    stand_in(root, "systemctl", f"case $1 in show) cat {root}/shown/$3 ;; *) cat {root}/shown/listed ;; esac")
    stand_in(root, "findmnt", "exit 1")
    stand_in(root, "sysctl", "case $2 in vm.min_free_kbytes) echo 1572864 ;; vm.overcommit_memory) echo 0 ;; esac")
    stand_in(root, "systemd-analyze", f"cat << 'END'\n{SYSCTL_D}END")
    stand_in(root, "ps", f"echo /bin/bash {SCRIPT} {FLOOR}")
    stand_in(root, "stat", f'shift 2; exec {shutil.which("stat")} -c "%a:root" "$@"')
    return root


def faults(check: Check, root: Path, **values: Any) -> list[str]:
    return [text.removeprefix("spark1: ") for text in reported(check, root, RACK, **values)]


@pytest.mark.parametrize(("check", "values"), checks(verify))
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check, values: dict[str, object]) -> None:
    assert faults(check, node(tmp_path), **values) == []


FILES: list[tuple[Check, dict[str, Any], str, tuple[str, str], str]] = [
    (verify.test_nothing_is_swapped_to, {}, "/proc/meminfo", ("SwapTotal: 0", "SwapTotal: 16"), "swap is on, 16 KiB"),
    (
        verify.test_nothing_is_swapped_to,
        *({}, "/proc/meminfo", ("SwapTotal", "Swaps")),
        "/proc/meminfo has no SwapTotal",
    ),
    (
        verify.test_no_unit_can_start_swap,
        *({}, "/shown/listed", ("dev-sda3.swap masked", "dev-sda3.swap generated")),
        "dev-sda3.swap can start swap again",
    ),
    (
        verify.test_no_unit_can_start_swap,
        *({}, "/shown/listed", ("swap.target masked", "swap.target static")),
        "swap.target can start swap again",
    ),
    (
        verify.test_no_unit_can_start_swap,
        *({}, "/shown/listed", ("swap.target masked disabled\n", "")),
        "systemd knows no swap.target",
    ),
    (verify.test_no_zram_device_holds_swap, {}, "/sys/block/zram0/disksize", ("0", "99"), "a zram device is set up"),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"/shown/{CONTAINER_SLICE}", ("ActiveState=active", "ActiveState=inactive")),
        f"{CONTAINER_SLICE} is inactive, wanted active",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"/shown/{CONTAINER_SLICE}", ("=enabled", "=disabled")),
        f"{CONTAINER_SLICE} is disabled, wanted enabled",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"/shown/{CONTAINER_SLICE}", (f"MemoryMax={LIMIT}", "MemoryMax=infinity")),
        f"{CONTAINER_SLICE}: MemoryMax is infinity, wanted {LIMIT}",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"/shown/{CONTAINER_SLICE}", ("MemorySwapMax=0", "MemorySwapMax=infinity")),
        f"{CONTAINER_SLICE}: MemorySwapMax is infinity, wanted 0",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"{CGROUPS}/{CONTAINER_SLICE}/memory.max", (LIMIT, "max")),
        f"{CONTAINER_SLICE}: memory.max is max in the kernel, wanted {LIMIT}",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, f"{CGROUPS}/{CONTAINER_SLICE}/memory.swap.max", ("0", "max")),
        f"{CONTAINER_SLICE}: memory.swap.max is max in the kernel, wanted 0",
    ),
    *(
        (
            verify.test_no_drop_in_changes_the_units,
            *({}, f"/shown/{unit}", ("DropInPaths=", f"DropInPaths=/run/{unit}.d/x.conf /etc/{unit}.d/y.conf ")),
            f"{unit} is changed by /run/{unit}.d/x.conf, /etc/{unit}.d/y.conf",
        )
        for unit in (CONTAINER_SLICE, GUARD)
    ),
    (
        verify.test_the_guard_is_armed,
        *({}, f"/shown/{GUARD}", ("ActiveState=active", "ActiveState=failed")),
        f"{GUARD} is failed, wanted active",
    ),
    (
        verify.test_the_guard_is_armed,
        *({}, f"/shown/{GUARD}", ("=enabled", "=disabled")),
        f"{GUARD} is disabled, wanted enabled",
    ),
    (
        verify.test_the_guard_is_armed,
        *({}, "/proc/50/oom_score_adj", ("-1000", "0")),
        "the guard's OOM score is 0, wanted -1000",
    ),
    (
        verify.test_the_guard_has_something_to_guard,
        *({}, "/proc/meminfo", (f"MemAvailable: {FLOOR}", f"MemAvailable: {FLOOR - 1}")),
        f"{FLOOR - 1} KiB are available, less than the floor of {FLOOR}: containers are ended",
    ),
    (
        verify.test_the_guard_has_something_to_guard,
        *({}, "/proc/meminfo", ("MemAvailable", "MemUnused")),
        "/proc/meminfo has no MemAvailable",
    ),
    (
        verify.test_a_daemon_outlives_a_shortage,
        *({"daemon": SSH}, f"/shown/{SSH.unit}", (f"MemoryMin={SSH.keep * MEBIBYTE}", "MemoryMin=0")),
        f"ssh.service: MemoryMin is 0, wanted {SSH.keep * MEBIBYTE}",
    ),
    (
        verify.test_a_daemon_outlives_a_shortage,
        *({"daemon": SSH}, f"{CGROUPS}/{SYSTEM}/{SSH.unit}/memory.min", (str(SSH.keep * MEBIBYTE), "0")),
        f"ssh.service: memory.min is 0 in the kernel, wanted {SSH.keep * MEBIBYTE}",
    ),
    (
        verify.test_a_daemon_outlives_a_shortage,
        *({"daemon": SSH}, "/proc/60/oom_score_adj", ("-1000", "-899")),
        "ssh.service: its OOM score is -899, wanted -900 or less",
    ),
    (
        verify.test_a_daemon_outlives_a_shortage,
        *({"daemon": NETWORK}, f"/shown/{NETWORK.unit}", ("OOMScoreAdjust=-900", "OOMScoreAdjust=0")),
        "systemd-networkd.service: OOMScoreAdjust will be 0 when it starts, wanted -900",
    ),
    (
        verify.test_the_daemons_share_is_kept_for_them,
        *({}, f"{CGROUPS}/{SYSTEM}/memory.min", (RESERVED, "0")),
        f"{SYSTEM}: memory.min is 0 in the kernel, wanted {RESERVED}",
    ),
    (
        verify.test_the_daemons_share_is_kept_for_them,
        *({}, f"/shown/{SYSTEM}", (RESERVED, "0")),
        f"{SYSTEM}: MemoryMin is 0, wanted {RESERVED}",
    ),
]


@pytest.mark.parametrize(("check", "values", "path", "edit", "says"), FILES)
def test_what_a_file_says(
    tmp_path: Path, check: Check, values: dict[str, Any], path: str, edit: tuple[str, str], says: str
) -> None:
    file = Path(f"{node(tmp_path)}{path}")
    file.write_text(changed(file.read_text(), edit))
    assert faults(check, tmp_path, **values) == [says]


KEY = {"key": "min_free_kbytes"}
TOOLS: list[tuple[Check, dict[str, Any], str, str, str]] = [
    (
        verify.test_fstab_names_no_swap,
        *({}, "findmnt", "echo /swap.img"),
        "fstab swaps to /swap.img at the next boot",
    ),
    (
        verify.test_fstab_names_no_swap,
        *({}, "findmnt", "echo 'parse error at line 3' >&2; exit 32"),
        "findmnt cannot read fstab: parse error at line 3",
    ),
    (verify.test_no_unit_can_start_swap, {}, "systemctl", "echo 'no bus' >&2; exit 1", "systemctl: no bus"),
    (
        verify.test_kernel_setting_is_live,
        *(KEY, "sysctl", "echo 65536"),
        "vm.min_free_kbytes is 65536, wanted 1572864",
    ),
    (
        verify.test_kernel_setting_comes_back_at_boot,
        *(KEY, "systemd-analyze", "echo vm.min_free_kbytes=1572864; echo vm.min_free_kbytes=65536"),
        "vm.min_free_kbytes will be 65536 after a boot, wanted 1572864",
    ),
    (
        verify.test_kernel_setting_comes_back_at_boot,
        *(KEY, "systemd-analyze", "echo vm.overcommit_memory=0"),
        "no drop-in sets vm.min_free_kbytes at boot",
    ),
    (
        verify.test_kernel_setting_comes_back_at_boot,
        *(KEY, "systemd-analyze", "echo 'no such verb' >&2; exit 1"),
        "systemd-analyze: no such verb",
    ),
    (
        verify.test_containers_together_are_bounded,
        *({}, "systemctl", "echo 'no bus' >&2; exit 1"),
        f"systemctl show --property=ActiveState,UnitFileState,MemoryMax,MemorySwapMax {CONTAINER_SLICE}: no bus",
    ),
    (
        verify.test_the_guard_is_armed,
        *({}, "ps", f"echo /bin/bash {SCRIPT} 1"),
        f"the guard runs as '/bin/bash {SCRIPT} 1', wanted '{SCRIPT} {FLOOR}'",
    ),
    (
        verify.test_room_can_be_made_before_a_launch,
        *({}, "stat", "echo 755:ops"),
        f"{memory_gate.SCRIPT} is 755:ops, wanted 755:root",
    ),
]


@pytest.mark.parametrize(("check", "values", "tool", "script", "says"), TOOLS)
def test_what_a_tool_says(
    tmp_path: Path, check: Check, values: dict[str, Any], tool: str, script: str, says: str
) -> None:
    stand_in(node(tmp_path), tool, script)
    assert faults(check, tmp_path, **values) == [says]


def test_a_file_of_the_kernel_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = f"{CGROUPS}/{CONTAINER_SLICE}/memory.max"
    Path(f"{node(tmp_path)}{path}").unlink()
    (said,) = faults(verify.test_containers_together_are_bounded, tmp_path)
    assert said.startswith(f"{path}: cat: ")


def test_a_kernel_without_swap_has_no_limit_of_it(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{CGROUPS}/{CONTAINER_SLICE}/memory.swap.max").unlink()
    assert faults(verify.test_containers_together_are_bounded, tmp_path) == []


def test_a_gate_that_others_may_change_fails(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{memory_gate.SCRIPT}").chmod(0o777)
    assert faults(verify.test_room_can_be_made_before_a_launch, tmp_path) == [
        f"{memory_gate.SCRIPT} is 777:root, wanted 755:root"
    ]


def test_a_gate_that_is_not_there_fails(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{memory_gate.SCRIPT}").unlink()
    assert faults(verify.test_room_can_be_made_before_a_launch, tmp_path) == [
        f"{memory_gate.SCRIPT} is not there, wanted 755:root"
    ]


def test_a_gate_that_lets_a_call_without_an_amount_pass_fails(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{memory_gate.SCRIPT}").write_text("#!/bin/sh\n")
    assert faults(verify.test_room_can_be_made_before_a_launch, tmp_path) == [
        f"{memory_gate.SCRIPT} without an amount ends with 0, wanted 2"
    ]


def test_a_daemon_that_does_not_run_is_not_checked(tmp_path: Path) -> None:
    write(node(tmp_path), f"/shown/{NETWORK.unit}", "ActiveState=inactive\n")
    assert faults(verify.test_a_daemon_outlives_a_shortage, tmp_path, daemon=NETWORK) == [
        "skipped: systemd-networkd.service does not run on this node"
    ]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("ActiveState=inactive\nLoadState=not-found\n", []),
        ("ActiveState=active\nLoadState=loaded\n", [f"spark1: {GUARD} is active, wanted none"]),
        ("ActiveState=inactive\nLoadState=loaded\n", [f"spark1: {GUARD} is still there, wanted none"]),
    ],
)
def test_a_guard_that_the_rack_does_not_want(tmp_path: Path, state: str, says: list[str]) -> None:
    write(node(tmp_path), f"/shown/{GUARD}", state)
    assert reported(verify.test_the_guard_is_armed, tmp_path, UNGUARDED) == says
    assert reported(verify.test_the_guard_has_something_to_guard, tmp_path, UNGUARDED) == [
        "skipped: rack.yaml wants no guard"
    ]


@pytest.mark.parametrize(
    ("rack", "name", "skipped"),
    [
        (RACK, "test_fstab_names_no_swap[spark1]", False),
        (UNGUARDED, "test_fstab_names_no_swap[spark1]", True),
        (UNGUARDED, "test_the_guard_is_armed[spark1]", False),
    ],
)
def test_swap_is_checked_unless_the_rack_leaves_it_alone(rack: Rack, name: str, skipped: bool) -> None:
    request = SimpleNamespace(node=SimpleNamespace(name=name))
    with pytest.raises(pytest.skip.Exception) if skipped else nullcontext():
        function_of(verify._only_if_declared)(rack, request)

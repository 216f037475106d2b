"""Verify a node's memory with standard tools, not with the role's own facts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from core.model import CONTAINER_SLICE, Node, Rack, mebibytes
from core.ssh.client import Machine
from core.verify.node_answers import unit_properties
from roles.docker.options import DockerOptions
from roles.memory.cgroups import GUARD, SYSTEM
from roles.memory.daemon_protection import DAEMONS, ENOUGH, MEBIBYTE, SUM, Daemon
from roles.memory.desired import sysctls
from roles.memory.memory_gate import SCRIPT as GATE
from roles.memory.memory_guard import SCRIPT, floor_kb
from roles.memory.options import MemoryOptions

SYSCTLS = ("min_free_kbytes", "overcommit_memory")


def read(machine: Machine, path: str) -> str:
    """The one word in a file of the kernel."""
    done = machine.run("cat %s", path)
    assert done.rc == 0, f"{path}: {done.stderr.strip()}"
    return str(done.stdout).strip()


def _require_running(node: Node, unit: str, properties: Mapping[str, str]) -> None:
    for key, wanted in (("ActiveState", "active"), ("UnitFileState", "enabled")):
        assert properties[key] == wanted, f"{node.name}: {unit} is {properties[key]}, wanted {wanted}"


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack, request: pytest.FixtureRequest) -> None:
    if rack.options(MemoryOptions).swap and "swap" in request.node.name:
        pytest.skip("rack.yaml leaves swap alone")


def test_nothing_is_swapped_to(node: Node, machine: Machine) -> None:
    """The kernel has no swap space: SwapTotal is 0."""
    meminfo = machine.file("/proc/meminfo").content_string
    total = re.search(r"^SwapTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    assert total, f"{node.name}: /proc/meminfo has no SwapTotal"
    assert total[1] == "0", f"{node.name}: swap is on, {total[1]} KiB"


def test_fstab_names_no_swap(node: Node, machine: Machine) -> None:
    """No entry that would be swapped to at the next boot, as util-linux reads the file."""
    found = machine.run("findmnt --fstab --types swap --noheadings --output SOURCE")
    assert found.rc in (0, 1), f"{node.name}: findmnt cannot read fstab: {found.stderr.strip()}"
    assert not found.stdout.strip(), f"{node.name}: fstab swaps to {found.stdout.strip()} at the next boot"


def test_no_unit_can_start_swap(node: Node, machine: Machine) -> None:
    """Every swap unit that systemd knows is masked, and so is the target that pulls them in."""
    listed = machine.run("systemctl list-unit-files --no-legend --plain --no-pager '*.swap' swap.target")
    assert listed.rc == 0, f"{node.name}: systemctl: {listed.stderr.strip()}"
    states = {line.split()[0]: line.split()[1] for line in listed.stdout.splitlines()}
    assert "swap.target" in states, f"{node.name}: systemd knows no swap.target"
    loose = [name for name, state in states.items() if state != "masked"]
    assert not loose, f"{node.name}: {', '.join(loose)} can start swap again"


def test_no_zram_device_holds_swap(node: Node, machine: Machine) -> None:
    """No compressed memory device is set up."""
    devices = machine.run("cat /sys/block/zram*/disksize 2>/dev/null; true").stdout.split()
    assert not [size for size in devices if size != "0"], f"{node.name}: a zram device is set up"


@pytest.mark.parametrize("key", SYSCTLS)
def test_kernel_setting_is_live(node: Node, machine: Machine, rack: Rack, key: str) -> None:
    """`sysctl` shows the value in the kernel."""
    wanted, live = sysctls(rack)[f"vm.{key}"], machine.sysctl(f"vm.{key}")
    assert live == wanted, f"{node.name}: vm.{key} is {live}, wanted {wanted}"


@pytest.mark.parametrize("key", SYSCTLS)
def test_kernel_setting_comes_back_at_boot(node: Node, machine: Machine, rack: Rack, key: str) -> None:
    """The last word in all drop-ins, in the order that systemd reads them."""
    wanted = sysctls(rack)[f"vm.{key}"]
    config = machine.run("systemd-analyze cat-config sysctl.d --no-pager")
    assert config.rc == 0, f"{node.name}: systemd-analyze: {config.stderr.strip()}"
    values = re.findall(rf"^\s*-?vm[./]{key}\s*=\s*(\S+)", config.stdout, re.MULTILINE)
    assert values, f"{node.name}: no drop-in sets vm.{key} at boot"
    assert values[-1] == str(wanted), f"{node.name}: vm.{key} will be {values[-1]} after a boot, wanted {wanted}"


def test_containers_together_are_bounded(node: Node, machine: Machine, rack: Rack) -> None:
    """The slice is there without a container, stays after a boot, and both systemd and the kernel know its limits."""
    properties = unit_properties(
        node, machine, CONTAINER_SLICE, "ActiveState", "UnitFileState", "MemoryMax", "MemorySwapMax"
    )
    wanted = str(mebibytes(rack.options(DockerOptions).memory) * MEBIBYTE)
    _require_running(node, CONTAINER_SLICE, properties)
    for key, limit in (("MemoryMax", wanted), ("MemorySwapMax", "0")):
        assert properties[key] == limit, f"{node.name}: {CONTAINER_SLICE}: {key} is {properties[key]}, wanted {limit}"
    live = read(machine, f"/sys/fs/cgroup/{CONTAINER_SLICE}/memory.max")
    assert live == wanted, f"{node.name}: {CONTAINER_SLICE}: memory.max is {live} in the kernel, wanted {wanted}"
    swap = machine.run("cat %s", f"/sys/fs/cgroup/{CONTAINER_SLICE}/memory.swap.max").stdout.strip()
    assert swap in ("0", ""), f"{node.name}: {CONTAINER_SLICE}: memory.swap.max is {swap} in the kernel, wanted 0"


def test_no_drop_in_changes_the_units(node: Node, machine: Machine) -> None:
    """The limits and the guard are not changed by `systemctl set-property` or `systemctl edit`."""
    for unit in (CONTAINER_SLICE, GUARD):
        paths = [
            path
            for path in unit_properties(node, machine, unit, "DropInPaths")["DropInPaths"].split()
            if f"/{unit}.d/" in path
        ]
        assert not paths, f"{node.name}: {unit} is changed by {', '.join(paths)}"


def test_the_guard_is_armed(node: Node, machine: Machine, rack: Rack) -> None:
    """It runs with the rack's floor, comes back after a boot, and the kernel's killer leaves it alone; or is not."""
    properties = unit_properties(
        node, machine, GUARD, "ActiveState", "UnitFileState", "MainPID", "NRestarts", "LoadState"
    )
    if not rack.options(MemoryOptions).floor:
        assert properties["ActiveState"] == "inactive", (
            f"{node.name}: {GUARD} is {properties['ActiveState']}, wanted none"
        )
        assert properties["LoadState"] == "not-found", f"{node.name}: {GUARD} is still there, wanted none"
        return
    _require_running(node, GUARD, properties)
    wanted = f"{SCRIPT} {floor_kb(rack)}"
    runs = machine.run("ps -o args= -p %s", properties["MainPID"]).stdout.strip()
    assert runs.endswith(f" {wanted}"), f"{node.name}: the guard runs as {runs!r}, wanted {wanted!r}"
    score = read(machine, f"/proc/{properties['MainPID']}/oom_score_adj")
    assert score == "-1000", f"{node.name}: the guard's OOM score is {score}, wanted -1000"


def test_the_guard_has_something_to_guard(node: Node, machine: Machine, rack: Rack) -> None:
    """More than the floor is available, else every container in the slice would be ended at once."""
    if not rack.options(MemoryOptions).floor:
        pytest.skip("rack.yaml wants no guard")
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", machine.file("/proc/meminfo").content_string, re.MULTILINE)
    assert found, f"{node.name}: /proc/meminfo has no MemAvailable"
    assert int(found[1]) >= floor_kb(rack), (
        f"{node.name}: {found[1]} KiB are available, less than the floor of {floor_kb(rack)}: containers are ended"
    )


def test_room_can_be_made_before_a_launch(node: Node, machine: Machine) -> None:
    """The launch step is there, only root can change it, and it knows its own use; caches are left alone."""
    modes = machine.run("stat -c %%a:%%U %s", GATE).stdout.strip()
    assert modes == "755:root", f"{node.name}: {GATE} is {modes or 'not there'}, wanted 755:root"
    asked = machine.run("%s", GATE)
    assert asked.rc == 2, f"{node.name}: {GATE} without an amount ends with {asked.rc}, wanted 2"


@pytest.mark.parametrize("daemon", DAEMONS, ids=lambda daemon: daemon.unit)
def test_a_daemon_outlives_a_shortage(node: Node, machine: Machine, daemon: Daemon) -> None:
    """systemd reserves memory for it, and its main process has the OOM score."""
    properties = unit_properties(node, machine, daemon.unit, "ActiveState", "MemoryMin", "OOMScoreAdjust", "MainPID")
    if properties["ActiveState"] != "active":
        pytest.skip(f"{daemon.unit} does not run on this node")
    wanted = str(daemon.keep * MEBIBYTE)
    assert properties["MemoryMin"] == wanted, (
        f"{node.name}: {daemon.unit}: MemoryMin is {properties['MemoryMin']}, wanted {wanted}"
    )
    live = read(machine, f"/sys/fs/cgroup/{SYSTEM}/{daemon.unit}/memory.min")
    assert live == wanted, f"{node.name}: {daemon.unit}: memory.min is {live} in the kernel, wanted {wanted}"
    score = int(read(machine, f"/proc/{properties['MainPID']}/oom_score_adj"))
    assert score <= ENOUGH, f"{node.name}: {daemon.unit}: its OOM score is {score}, wanted {ENOUGH} or less"
    if daemon.by_unit:
        boot = properties["OOMScoreAdjust"]
        assert boot == str(daemon.score), (
            f"{node.name}: {daemon.unit}: OOMScoreAdjust will be {boot} when it starts, wanted {daemon.score}"
        )


def test_the_daemons_share_is_kept_for_them(node: Node, machine: Machine) -> None:
    """The slice around the services reserves the sum of their memory, since a reservation counts only as far as the
    slice has it.
    """
    live, wanted = read(machine, f"/sys/fs/cgroup/{SYSTEM}/memory.min"), str(SUM * MEBIBYTE)
    assert live == wanted, f"{node.name}: {SYSTEM}: memory.min is {live} in the kernel, wanted {wanted}"
    memory_min = unit_properties(node, machine, SYSTEM, "MemoryMin")["MemoryMin"]
    assert memory_min == wanted, f"{node.name}: {SYSTEM}: MemoryMin is {memory_min}, wanted {wanted}"

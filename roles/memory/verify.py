"""Prove a node's memory: by the tools a person would use, not by what the role reads."""

from __future__ import annotations

import re

import pytest

from roles.memory.state import sysctls
from sparkrack.fleet import Memory, Node, Rack
from sparkrack.proof.machines import Machine


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack, request: pytest.FixtureRequest) -> None:
    if rack.memory.swap and "swap" in request.node.name:
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


@pytest.mark.parametrize("key", sorted(Memory.model_fields.keys() - {"swap"}))
def test_kernel_setting_is_live(node: Node, machine: Machine, rack: Rack, key: str) -> None:
    """The kernel's value, by `sysctl`."""
    wanted, live = sysctls(rack)[f"vm.{key}"], machine.sysctl(f"vm.{key}")
    assert live == wanted, f"{node.name}: vm.{key} is {live}, wanted {wanted}"


@pytest.mark.parametrize("key", sorted(Memory.model_fields.keys() - {"swap"}))
def test_kernel_setting_comes_back_at_boot(node: Node, machine: Machine, rack: Rack, key: str) -> None:
    """The last word in all drop-ins, in the order that systemd reads them."""
    wanted = sysctls(rack)[f"vm.{key}"]
    config = machine.run("systemd-analyze cat-config sysctl.d --no-pager")
    assert config.rc == 0, f"{node.name}: systemd-analyze: {config.stderr.strip()}"
    values = re.findall(rf"^\s*-?vm[./]{key}\s*=\s*(\S+)", config.stdout, re.MULTILINE)
    assert values, f"{node.name}: no drop-in sets vm.{key} at boot"
    assert values[-1] == str(wanted), f"{node.name}: vm.{key} will be {values[-1]} after a boot, wanted {wanted}"

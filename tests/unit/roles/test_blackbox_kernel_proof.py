"""The proof of the watchdog's first stage and of the crash kernel: each thing broken fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.verify.reporter import CheckReporter
from roles.blackbox import boot_parameters, kdump, verify, watchdog
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Machine
from tests.unit.roles.kernel_node import TEMPLATE
from tests.unit.roles.test_blackbox_kernel import rack

SETTINGS = TEMPLATE + "KDUMP_NUM_DUMPS=3\n"
RIGHT = {
    "identity": "SBSA Generic Watchdog",
    "log": "sbsa-gwdt sbsa-gwdt.0: Initialized with 10s timeout @ 1000 Hz, action=1.",
    "modprobe": "options sbsa_gwdt action=1",
    "entry": "linux /vmlinuz ro crashkernel=1G-:0M crashkernel=1G-:512M",
    "size": "536870912",
    "loaded": "1",
    "unit": "enabled",
    "runs": "{ path=/usr/local/lib/sparkrack/keep-crash-log ; argv[]=/usr/local/lib/sparkrack/keep-crash-log ; }",
    "settings": SETTINGS,
}


def outcome(root: Path, section: str = "kdump: {}", **broken: str) -> list[str]:
    """What fails on a node that is right, but for these; `skipped: ` before the reason of a check that is skipped."""
    shown = {**RIGHT, **broken}
    write(root, f"{watchdog.SYSFS}/watchdog0/identity", f"{shown['identity']}\n")
    write(root, boot_parameters.CONFIG, f"\t{shown['entry']}\n")
    for name in ("size", "loaded"):
        write(root, f"/sys/kernel/kexec_crash_{name}", f"{shown[name]}\n")
    write(root, kdump.SETTINGS, shown["settings"])
    stand_in(root, "journalctl", f"echo '{shown['log']}'")
    stand_in(root, "modprobe", f"echo '{shown['modprobe']}'")
    stand_in(root, "systemctl", f"echo UnitFileState={shown['unit']}; echo 'ExecStart={shown['runs']}'")
    found = rack(section)
    arguments = (found.nodes["spark1"], Machine(root), found, CheckReporter([]))
    said = []
    for check in (verify.test_the_watchdog_panics_before_it_resets, verify.test_a_crash_kernel_waits):
        try:
            check(*arguments)
        except pytest.skip.Exception as error:
            said.append(f"skipped: {error}")
        except AssertionError as error:
            said.append(str(error).splitlines()[0].removeprefix("spark1: "))
    return said


def test_a_node_that_is_right(tmp_path: Path) -> None:
    assert outcome(tmp_path) == []


def test_a_driver_that_is_built_in(tmp_path: Path) -> None:
    assert outcome(tmp_path, modprobe="", entry=f"{RIGHT['entry']} sbsa_gwdt.action=1") == []


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        ({"log": ""}, "the kernel's log of this boot has no line of sbsa-gwdt with its action"),
        (
            {"log": RIGHT["log"].replace("action=1", "action=0")},
            "the driver runs with action=0, wanted 1; a reboot brings what is configured",
        ),
        ({"modprobe": ""}, "the next boot has action=none, wanted 1"),
        ({"modprobe": "options sbsa_gwdt action=1 action=0"}, "the next boot has action=0, wanted 1"),
        ({"entry": f"{RIGHT['entry']} sbsa_gwdt.action=0"}, "the next boot has action=0, 1, wanted 1"),
        ({"size": "0"}, "the kernel has reserved 0 bytes, wanted 512M"),
        ({"loaded": "0"}, "no crash kernel is loaded; journalctl --boot --unit=kdump-tools.service"),
        (
            {"entry": f"{RIGHT['entry']} crashkernel=128G-:4096M"},
            "the next boot does not have crashkernel=1G-:512M",
        ),
        ({"unit": "masked"}, "kdump-tools.service is masked, wanted enabled"),
        (
            {"settings": f"{SETTINGS}if true; then KDUMP_NUM_DUMPS=9; fi\n"},
            "USE_KDUMP, KDUMP_NUM_DUMPS are 1 9, wanted 1 3",
        ),
        (
            {"runs": "{ path=/etc/init.d/kdump-tools ; }"},
            (
                "the crash kernel would write the memory as well: kdump-tools-dump.service runs "
                "{ path=/etc/init.d/kdump-tools ; }"
            ),
        ),
        (
            {"section": "kdump: {vmcore: true}", "settings": f"{SETTINGS}KDUMP_SKIP_VMCORE=1\n", "runs": "x"},
            "USE_KDUMP, KDUMP_NUM_DUMPS, KDUMP_SKIP_VMCORE are 1 3 1, wanted 1 3 0",
        ),
        (
            {"section": "kdump: {vmcore: true}"},
            (
                "the crash kernel would write the log alone: kdump-tools-dump.service runs "
                "{ path=/usr/local/lib/sparkrack/keep-crash-log ; argv[]=/usr/local/lib/sparkrack/keep-crash-log ; }"
            ),
        ),
    ],
)
def test_what_is_broken_fails(tmp_path: Path, broken: dict[str, str], reported: str) -> None:
    assert outcome(tmp_path, **broken) == [reported]


def test_what_is_left_alone_is_skipped_and_what_is_left_behind_fails(tmp_path: Path) -> None:
    section = "watchdog_panics: false"
    skipped = "skipped: rack.yaml leaves the watchdog, or its first stage, alone"
    assert outcome(tmp_path, section, log="", modprobe="") == [skipped]
    write(tmp_path, kdump.FRAGMENT)
    assert outcome(tmp_path, section) == [skipped, f"{kdump.FRAGMENT} is there, and no crash kernel is declared"]


def test_another_watchdog_cannot_panic_first(tmp_path: Path) -> None:
    assert outcome(tmp_path, identity="Software Watchdog", log="", modprobe="") == [
        "skipped: only the SBSA Generic Watchdog panics first; this node has Software Watchdog"
    ]

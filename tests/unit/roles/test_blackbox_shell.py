"""What the role blackbox asks of a node and sends to it, run by a real shell, and what the plan says."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from core.ops import host_facts
from core.ops.host_facts import HostReading
from core.util.event import EventKind
from roles.blackbox import apply, boot_evidence, clock_cap, desired, facts, services, watchdog
from tests.unit.ops.shells import calls, run, stand_in, write
from tests.unit.roles.cases import OPERATIONS, node_in, rack_of, read

LOGGED = "[    3.112233] sbsa-gwdt sbsa-gwdt.0: Initialized with 10s timeout @ 1000000000 Hz, action={}. [enabled]"
"""As the driver logs it (drivers/watchdog/sbsa_gwdt.c)."""
BOOT = "1f0e1d2c-3b4a-5968-7786-95a4b3c2d1e0"
COMMANDS = host_facts._registered["blackbox"].commands
OPERATIONS_OF_THE_ROLE = (
    apply.feed_watchdog,
    apply.panic_before_reset,
    apply.set_panic_policy,
    apply.keep_panic_records,
    apply.keep_journal,
    apply.cap_clock,
    apply.collect_evidence,
    apply.reserve_memory,
    apply.install_kdump,
    apply.load_crash_kernel,
    apply.report_reboot,
)


def facts_of(case: str) -> facts.BlackboxFacts:
    """The facts of a case in tests/cases/operations."""
    found = read(OPERATIONS / "blackbox" / f"{case}.yaml")
    answers = {
        key: text.encode() if isinstance(text, str) else text for key, text in node_in("blackbox", found).items()
    }
    rack = rack_of(found)
    return facts.BlackboxFacts(HostReading(answers, {}), rack, rack.nodes["spark1"])


def files_of(root: Path, live: str) -> Path:
    """A node with the files that these lines of state are read from."""
    places = {
        "sysctl": "/proc/sys/{}",
        "pstore": "/sys/module/pstore/parameters/{}",
    }
    write(root, "/etc/machine-id", "0123abc\n")
    write(root, "/proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    (root / "var").mkdir()
    for (subject, name), value in desired.parse_live(live).items():
        if value == "absent" or subject in ("journal", "clock", "evidence", "boot") or name == "module":
            continue
        if subject == "sbsa_gwdt":
            (root / "sys/module/sbsa_gwdt").mkdir(parents=True)
            stand_in(root, "dmesg", f"echo '{LOGGED.format(value)}'")
        elif subject == "efi_pstore":
            write(root, "/sys/module/efi_pstore/parameters/pstore_disable", f"{value}\n")
        else:
            write(root, places.get(subject, f"{watchdog.SYSFS}/{subject}/{{}}").format(name), f"{value}\n")
    return root


def asked(root: Path, key: str = facts.LIVE) -> str:
    done = run(COMMANDS[key], root)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", ["factory-fresh", "already-right"])
def test_the_state_of_a_node(tmp_path: Path, case: str) -> None:
    """The answers in the cases are what the script prints of such files."""
    one = facts_of(case)
    live = one.reading.text(facts.LIVE)
    node = files_of(tmp_path, live)
    stand_in(node, "modinfo", f"echo {one.live['efi_pstore', 'module']}")
    stand_in(node, "nvidia-smi", "echo 2177")
    write(node, "/var/log/journal/0123abc/system.journal")
    if case == "already-right":
        write(node, clock_cap.UNIT)
        write(node, f"{boot_evidence.BOOTS}/{BOOT.replace('-', '')}/evidence.json", "{}")
    assert desired.parse_live(asked(node)) == dict(one.live)


def test_a_node_without_any_of_it(tmp_path: Path) -> None:
    """As the lab's kernel: no watchdog, no lockup detector, no backend of pstore, and a journal in memory."""
    node = files_of(tmp_path, "")
    stand_in(node, "modinfo", "exit 1")
    live = desired.parse_live(asked(node))
    rack = facts_of("already-right").rack
    assert watchdog.devices(live) == []
    assert set(desired.live_sysctls(live, rack).values()) == {None}
    assert live["efi_pstore", "module"] == "absent"
    assert not desired.yes_or_no(live, "journal", "persistent")


def test_a_watchdog_whose_driver_shows_nothing(tmp_path: Path) -> None:
    node = files_of(tmp_path, "")
    (node / "sys/class/watchdog/watchdog1").mkdir(parents=True)
    with pytest.raises(ValueError, match="watchdog1: identity is unknown"):
        watchdog.devices(desired.parse_live(asked(node)))


def test_a_value_of_more_than_one_line_is_unknown(tmp_path: Path) -> None:
    node = files_of(tmp_path, "watchdog0 state active\n")
    write(node, f"{watchdog.SYSFS}/watchdog0/identity", "SBSA\n\x1b[2J; reboot\n")
    with pytest.raises(ValueError, match="unexpected probe output"):
        desired.parse_live(asked(node))


def test_a_file_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    node = files_of(tmp_path, "")
    (node / "proc/sys/kernel/panic").mkdir(parents=True)
    assert run(COMMANDS[facts.LIVE], node).returncode == 9


def test_the_gpu_is_asked_only_where_a_cap_was_set(tmp_path: Path) -> None:
    node = files_of(tmp_path, "")
    stand_in(node, "nvidia-smi", "echo 2177")
    assert clock_cap.clock(desired.parse_live(asked(node))) is None
    assert not [call for call in calls(node) if call.startswith("nvidia-smi")]
    write(node, clock_cap.UNIT)
    assert clock_cap.clock(desired.parse_live(asked(node))) == 2177


@pytest.mark.parametrize("script", ["echo 'No devices were found'; exit 6", "printf '2177\\n[N/A]\\n'", "echo"])
def test_a_gpu_that_does_not_answer_is_unknown(tmp_path: Path, script: str) -> None:
    node = files_of(tmp_path, "")
    stand_in(node, "nvidia-smi", script)
    write(node, clock_cap.UNIT)
    with pytest.raises(ValueError, match="clock of the GPU: unexpected probe output"):
        clock_cap.clock(desired.parse_live(asked(node)))


def test_marks_of_a_run_that_died(tmp_path: Path) -> None:
    """The command that marks, the probe and the command that forgets agree on the path."""
    node = files_of(tmp_path, "")
    for service in (services.JOURNAL, services.CLOCK, services.EVIDENCE):
        for command in service.set_mark():
            assert run(command, node).returncode == 0
        name = str(service.name).removeprefix("blackbox-")
        assert desired.yes_or_no(desired.parse_live(asked(node)), name, "pending")
        (node / service.mark.lstrip("/")).unlink()
        assert not desired.yes_or_no(desired.parse_live(asked(node)), name, "pending")


def test_settings_that_are_read_after_ours(tmp_path: Path) -> None:
    write(tmp_path, "/etc/systemd/journald.conf.d/a.conf", "[Journal]\n#Storage=auto\n Storage = volatile\nSeal=no\n")
    write(tmp_path, "/run/systemd/system.conf.d/b.conf", "[Manager]\nWatchdogDevice=/dev/watchdog9\nLogLevel=info\n")
    write(tmp_path, "/etc/sysctl.d/c.conf", "-kernel/panic_on_oops=0\nvm.swappiness=1\n")
    write(tmp_path, "/usr/lib/systemd/pstore.conf.d/d.conf", "[PStore]\nStorage=none\n")
    listings = (facts.JOURNAL_SETTINGS, facts.MANAGER_SETTINGS, facts.SYSCTL_SETTINGS, facts.PSTORE_SETTINGS)
    assert [asked(tmp_path, key).rpartition("/etc")[2].rpartition(".d/")[2] for key in listings] == [
        "a.conf: Storage = volatile\n",
        "b.conf:WatchdogDevice=/dev/watchdog9\n",
        "c.conf:-kernel/panic_on_oops=0\n",
        "d.conf:Storage=none\n",
    ]


def last_command(operation: object, case: str) -> object:
    """The last command that an operation sends for a case."""
    return operation.changeset(facts_of(case)).commands[-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("state", "code"), [("active", 0), ("inactive", 1)])
def test_systemd_must_feed_the_watchdog(tmp_path: Path, state: str, code: int) -> None:
    """systemd reports no error for a device that it could not open."""
    stand_in(tmp_path, "systemctl")
    stand_in(tmp_path, "sleep")
    write(tmp_path, f"{watchdog.SYSFS}/watchdog0/state", f"{state}\n")
    done = run(last_command(apply.feed_watchdog, "watchdog-off-live"), tmp_path)  # type: ignore[arg-type]
    assert done.returncode == code, done.stderr
    assert calls(tmp_path)[0] == "systemctl daemon-reexec"
    assert ("systemd does not feed /dev/watchdog0" in done.stderr) == bool(code)


@pytest.mark.parametrize(("backend", "code"), [("efi_pstore", 0), ("(null)", 1)])
def test_the_backend_must_be_registered(tmp_path: Path, backend: str, code: int) -> None:
    """modprobe ends with 0 for a module that registers nothing."""
    stand_in(tmp_path, "modprobe")
    write(tmp_path, "/sys/module/pstore/parameters/backend", f"{backend}\n")
    done = run(last_command(apply.keep_panic_records, "pstore-not-loaded"), tmp_path)  # type: ignore[arg-type]
    assert done.returncode == code, done.stderr
    assert calls(tmp_path) == ["modprobe efi_pstore"]


def test_a_cap_is_lifted_before_its_unit_is_removed(tmp_path: Path) -> None:
    link = write(tmp_path, f"/etc/systemd/system/multi-user.target.wants/{clock_cap.NAME}")
    unit = write(tmp_path, clock_cap.UNIT)
    stand_in(tmp_path, "nvidia-smi", "exit 6")
    stand_in(tmp_path, "systemctl")
    command = last_command(apply.cap_clock, "clock-cap-removed")
    assert run(command, tmp_path).returncode != 0  # type: ignore[arg-type]
    assert unit.exists(), "the next run must see that a cap is left"
    stand_in(tmp_path, "nvidia-smi")
    assert run(command, tmp_path).returncode == 0  # type: ignore[arg-type]
    assert not unit.exists()
    assert not link.exists()
    assert "nvidia-smi -rgc" in calls(tmp_path)


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd-tmpfiles is not installed")
@pytest.mark.parametrize("kept", [True, False])
def test_records_outlive_the_age_of_the_archive(tmp_path: Path, kept: bool) -> None:
    """The real systemd-tmpfiles, with the line of systemd's package and an age that all files have."""
    record = write(tmp_path, f"{desired.ARCHIVE}/1700000000/dmesg.txt", "Kernel panic - not syncing\n")
    old = time.time() - 40 * 86400
    for path in (record, record.parent, record.parent.parent):
        os.utime(path, (old, old))
    owner = f"{os.getuid()} {os.getgid()}"
    write(tmp_path, "/usr/lib/tmpfiles.d/systemd-pstore.conf", f"d {desired.ARCHIVE} 0755 {owner} 0\n")
    if kept:
        *_, ours = desired.pstore_files(facts_of("already-right").rack)
        write(tmp_path, desired.TMPFILES, ours.content.decode())
    done = subprocess.run(
        ["systemd-tmpfiles", "--clean", f"--root={tmp_path}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert record.exists() == kept


@pytest.mark.parametrize(
    ("case", "reported"),
    [
        ("already-right", []),
        (
            "watchdog-off-live",
            [
                "RuntimeWatchdogSec: 0 s -> 60 s (systemd is executed again)",
                "/dev/watchdog0: inactive -> active",
            ],
        ),
        (
            "watchdog-other-limit-live",
            [
                "RuntimeWatchdogSec: 125 s -> 60 s (systemd is executed again)",
                "RebootWatchdogSec: 300 s -> 600 s (systemd is executed again)",
                "timeout of /dev/watchdog0: 125 s -> 60 s",
            ],
        ),
        ("watchdog-drop-in-gone", ["create /etc/systemd/system.conf.d/zz-sparkrack-watchdog.conf"]),
        ("panic-differs-live", ["kernel.panic: 0 -> 10", "vm.panic_on_oom: 2 -> 0"]),
        ("panic-drop-in-others-may-write", ["/etc/sysctl.d/zz-sparkrack-blackbox.conf: owner and mode are put right"]),
        (
            "panic-setting-is-lacking",
            [
                (
                    "kernel.softlockup_panic: this kernel does not have it (CONFIG_SOFTLOCKUP_DETECTOR in "
                    "/boot/config-*); use a kernel with it, or set blackbox.panic.softlockup: false in rack.yaml"
                )
            ],
        ),
        ("pstore-not-loaded", ["backend of pstore: (none) -> efi_pstore"]),
        (
            "pstore-loaded-and-disabled",
            [
                (
                    "reboot required: efi_pstore was loaded with pstore_disable=Y, so pstore has no backend until the "
                    "next boot"
                )
            ],
        ),
        (
            "journal-differs",
            ["modify /etc/systemd/journald.conf.d/zz-sparkrack.conf", "restart systemd-journald.service"],
        ),
        ("journal-of-a-run-that-died", ["restart systemd-journald.service: it has not read its files"]),
        ("journal-flush-masked", ["unmask systemd-journal-flush.service", "journal: in memory -> on the disk"]),
        (
            "clock-above-the-cap",
            ["restart sparkrack-clock-cap.service: the clock is 2405 MHz, the cap 2200 MHz"],
        ),
        (
            "clock-unit-stopped-and-disabled",
            ["enable sparkrack-clock-cap.service", "start sparkrack-clock-cap.service"],
        ),
        ("evidence-program-differs", ["rewrite /usr/local/lib/sparkrack/boot_evidence.py"]),
        (
            "evidence-of-a-run-that-died",
            [
                (
                    "reload systemd: it has not read the files of sparkrack-clean-stop.service "
                    "sparkrack-boot-evidence.service"
                )
            ],
        ),
        ("evidence-not-collected", ["restart sparkrack-boot-evidence.service: this boot has no evidence"]),
        (
            "evidence-no-longer-declared",
            [
                (
                    "stop and remove sparkrack-clean-stop.service sparkrack-boot-evidence.service: rack.yaml declares "
                    "boot_evidence: false"
                )
            ],
        ),
        (
            "clock-cap-removed",
            ["stop and remove sparkrack-clock-cap.service: rack.yaml declares no clock_cap for this node"],
        ),
    ],
)
def test_what_the_plan_says(case: str, reported: list[str]) -> None:
    one = facts_of(case)
    events = [
        event
        for operation in OPERATIONS_OF_THE_ROLE
        for event in (*operation.changeset(one).warnings, *operation.changeset(one).events)
    ]
    assert [event.message for event in events] == reported


def test_what_a_kernel_lacks_is_broken_and_a_reboot_is_a_note() -> None:
    (lacking,) = apply.set_panic_policy.changeset(facts_of("panic-setting-is-lacking")).warnings
    (reboot,) = apply.report_reboot.changeset(facts_of("pstore-loaded-and-disabled")).warnings
    assert (lacking.kind, reboot.kind) == (EventKind.BROKEN, EventKind.NOTE)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1min", 60), ("2min 5s", 125), ("1h 500ms", 3600.5), ("infinity", None)]
)
def test_time_spans_of_systemd(text: str, seconds: float | None) -> None:
    shown = f"RuntimeWatchdogUSec={text}\nRebootWatchdogUSec=10min\n"
    assert watchdog.manager(shown) == watchdog.ManagerWatchdog(seconds, 600)


@pytest.mark.parametrize("text", ["", "soon", "1 min", "-5s", "10", "1min;reboot"])
def test_other_time_spans_are_unknown(text: str) -> None:
    with pytest.raises(ValueError, match="RuntimeWatchdogUSec: unexpected probe output"):
        watchdog.manager(f"RuntimeWatchdogUSec={text}\nRebootWatchdogUSec=10min\n")

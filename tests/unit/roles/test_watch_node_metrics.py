"""The program by which a node exports what it knows of itself: run as it is on a node, on what the programs of other
roles really write, and with stand-ins for systemctl and journalctl alone."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from roles.blackbox import watchdog
from roles.blackbox.certificate_authority import RackAuthority
from roles.watch import node_metrics
from serving import desired
from tests.generated import REPOSITORY
from tests.serving.serve_modules import serve_unit
from tests.serving.stepped_unit import SteppedUnit
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.model.serving_racks import unit
from tests.unit.ops.shells import calls, stand_in, write
from tests.unit.roles import serving_units
from tests.unit.roles.cases import OPERATIONS
from tests.unit.roles.models_hub import LocalStore, model
from tests.unit.roles.serving_units import locked
from tests.unit.roles.test_blackbox_boot_evidence import DIED, PANIC, entry, journal
from tests.unit.roles.test_blackbox_boot_evidence import run as evidence
from tests.unit.roles.test_blackbox_certificates import key
from tests.unit.roles.test_blackbox_shell import LOGGED

PROGRAM = REPOSITORY / "roles/watch/files/node_metrics.py"
JOURNAL_REMOTE = Path("/usr/lib/systemd/systemd-journal-remote")
BLACKBOX = "/var/lib/sparkrack/blackbox"
BOOT, BEFORE, LATER = "b" * 32, "a" * 32, "c" * 32
UNITS = ("systemd-journal-upload.service", "sparkrack-recorder.service", "sparkrack-clock-cap.service")
EVIDENCE = f"{BLACKBOX}/boots/{BOOT}/evidence.json"
ARMED = {"watchdog", "panic", "pstore", "netconsole", "journal", "evidence", "upload", "recorder", "clock_cap", "kdump"}

OTHER = "0" * 64
"""The hash of a file that differs, in cases."""

Values = dict[str, float]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node in a new boot without a black box, in whose boot before the journal ended in the middle."""
    boots(tmp_path, BOOT)
    write(tmp_path, "/proc/sys/kernel/panic", "0\n")
    write(tmp_path, "/proc/uptime", "95.20 11.0\n")
    write(tmp_path, "/etc/machine-id", "d" * 32)
    journal(tmp_path, entry(0, "the last line"))
    systemd(tmp_path)
    return tmp_path


def boots(root: Path, boot: str) -> None:
    """Put the node in this boot, which begins now."""
    write(root, "/proc/sys/kernel/random/boot_id", f"{boot[:8]}-{boot[8:12]}-{boot[12:16]}-{boot[16:20]}-{boot[20:]}\n")
    write(root, "/proc/uptime", "0.01 0.0\n")


def systemd(root: Path, active: tuple[str, ...] = ()) -> None:
    """Let systemctl answer, with these units active; the rest is not there. systemd chooses the order of properties."""
    shown = "\n".join(f"Id={unit}\nActiveState={'active' if unit in active else 'inactive'}\n" for unit in UNITS)
    stand_in(root, "systemctl", f"case \"$1\" in show) printf '{shown}';; *) exit 1;; esac")


def ran(root: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the program as its unit does; the file of its metrics."""
    metrics = root / "node.prom"
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "--metrics", str(metrics), "--root", str(root)],
        env={"PATH": f"{root}/bin:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, metrics


def exported(root: Path, unread: str = "", why: str = "") -> Values:
    """The values that are exported, each by its series and labels; `unread`: the part that cannot be read, and why."""
    done, metrics = ran(root)
    assert done.returncode == 0, done.stderr
    errors = done.stderr.splitlines()
    assert [line.startswith(f"node_metrics: {unread}: {why}") for line in errors] == ([True] if unread else []), errors
    found: Values = {}
    for family in text_string_to_metric_families(metrics.read_text()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            name = sample.name.removeprefix("sparkrack_") + (f"{{{labels}}}" if labels else "")
            assert name not in found, "Prometheus refuses a file with two values of one series"
            found[name] = sample.value
    assert {key for key, value in found.items() if key.startswith("node_metrics_unread") and value} == (
        {f"node_metrics_unread{{part={unread}}}"} if unread else set()
    ), done.stderr
    return found


def collect(root: Path) -> None:
    """Collect the evidence of this boot by the program of the black box."""
    stand_in(root, "systemctl", "echo 1min")
    done = evidence(root, "collect")
    assert done.returncode == 0, done.stderr
    systemd(root)


def of(found: Values, name: str) -> Values:
    return {key.partition("{")[2].rstrip("}"): value for key, value in found.items() if key.partition("{")[0] == name}


def test_a_node_without_a_black_box(node: Path) -> None:
    found = exported(node)
    assert of(found, "blackbox_armed") == {f"part={part}": 0 for part in ARMED}
    assert found["crash_records{place=pstore}"] == 0
    assert abs(found["node_metrics_timestamp_seconds"] - time.time()) < 60
    # What is not there has no value, and a zero would be one.
    for series in (
        "boot_clean",
        "journal_newest_timestamp_seconds",
        "model_info",
        "memory_guard_kill_timestamp_seconds",
    ):
        assert not of(found, series), series
    assert (node / "node.prom").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in node.glob("*.prom*")] == ["node.prom"], "a part of a file is left"


def test_a_black_box_that_is_armed(node: Path) -> None:
    collect(node)
    systemd(node, UNITS)
    for path, text in (
        ("/sys/class/watchdog/watchdog0/state", "inactive"),
        ("/sys/class/watchdog/watchdog1/state", "active"),
        ("/proc/sys/kernel/panic", "10"),
        ("/sys/module/pstore/parameters/backend", "efi_pstore"),
        ("/sys/kernel/config/netconsole/sparkrack/enabled", "1"),
        ("/sys/kernel/kexec_crash_loaded", "1"),
    ):
        write(node, path, f"{text}\n")
    write_journal(node / f"var/log/journal/{'d' * 32}/system.journal", 3.0)
    assert of(exported(node), "blackbox_armed") == {f"part={part}": 1 for part in ARMED}


@pytest.mark.parametrize(
    ("part", "path", "text"),
    [
        ("watchdog", "/sys/class/watchdog/watchdog1/state", "inactive"),
        ("panic", "/proc/sys/kernel/panic", "0"),
        ("pstore", "/sys/module/pstore/parameters/backend", "(null)"),
        ("netconsole", "/sys/kernel/config/netconsole/sparkrack/enabled", "0"),
        ("kdump", "/sys/kernel/kexec_crash_loaded", "0"),
        ("kdump", "/sys/kernel/kexec_crash_loaded", None),
        ("evidence", EVIDENCE, None),
        ("journal", f"/var/log/journal/{'d' * 32}/system.journal", None),
        *((part, unit, "") for part, unit in zip(("upload", "recorder", "clock_cap"), UNITS, strict=True)),
    ],
)
def test_a_part_that_is_not_active(node: Path, part: str, path: str, text: str | None) -> None:
    test_a_black_box_that_is_armed(node)
    if path in UNITS:
        systemd(node, tuple(unit for unit in UNITS if unit != path))
    elif text is None:
        (node / path.lstrip("/")).unlink()
    else:
        write(node, path, f"{text}\n")
    found = of(exported(node), "blackbox_armed")
    assert {key for key, value in found.items() if not value} == {f"part={part}"}


def sbsa(root: Path, *logged: str, least: str = "1", identity: str = "SBSA Generic Watchdog") -> None:
    """Give the node a software watchdog and this one, whose driver logged these lines in this boot."""
    write(root, "/sys/class/watchdog/watchdog0/identity", "Software Watchdog\n")
    write(root, "/sys/class/watchdog/watchdog1/identity", f"{identity}\n")
    write(root, "/sys/class/watchdog/watchdog1/min_timeout", f"{least}\n")
    write(root, "/kernel-log", "".join(f"{line}\n" for line in ("sbsa-gwdt is not a driver", *logged)))
    stand_in(
        root, "journalctl", f'case "$*" in "--boot --dmesg "*" --output=cat") cat {root}/kernel-log;; *) exit 1;; esac'
    )


@pytest.mark.parametrize(
    ("logged", "least", "armed"),
    [
        ((LOGGED.format(1),), "1", 1),
        ((LOGGED.format(0),), "3", 0),
        # The module was loaded twice.
        ((LOGGED.format(0), LOGGED.format(1)), "1", 1),
        # The log has lost the line; such a minimum is that of a driver whose action is 0.
        ((), "3", 0),
    ],
)
def test_a_watchdog_that_panics_first(node: Path, logged: tuple[str, ...], least: str, armed: int) -> None:
    """As the driver has logged its parameter."""
    sbsa(node, *logged, least=least)
    assert of(exported(node), "blackbox_armed")["part=watchdog_panics"] == armed


def test_a_watchdog_that_cannot_panic_is_not_disarmed(node: Path) -> None:
    sbsa(node, identity="SP805 Watchdog")
    assert "part=watchdog_panics" not in of(exported(node), "blackbox_armed")
    assert "journalctl" not in "".join(calls(node))


@pytest.mark.parametrize(
    "path", ["etc/modprobe.d/zz-sparkrack-watchdog.conf", "etc/default/grub.d/zz-sparkrack-watchdog.cfg"]
)
def test_an_action_of_the_watchdog_that_is_lost_matters_where_it_was_set(node: Path, path: str) -> None:
    assert f"/{path}" in (watchdog.MODPROBE, watchdog.FRAGMENT)
    sbsa(node)
    assert "part=watchdog_panics" not in of(exported(node), "blackbox_armed")
    write(node, f"/{path}")
    assert "part=watchdog_panics" not in of(
        exported(node, "watchdog_panics", "the kernel's log of this boot no"), "blackbox_armed"
    )


def test_a_boot_after_a_shutdown_is_clean(node: Path) -> None:
    boots(node, BEFORE)
    stand_in(node, "systemctl", 'case "$*" in *is-system-running*) echo stopping; exit 1;; *) echo;; esac')
    assert evidence(node, "mark").returncode == 0
    boots(node, BOOT)
    collect(node)
    assert exported(node)["boot_clean"] == 1


def test_a_mark_that_something_contradicts_silences_no_page(node: Path) -> None:
    """As after a planned reboot whose next boot hung at once, and was reset: the boot before left its mark, only."""
    boots(node, BEFORE)
    stand_in(node, "systemctl", 'case "$*" in *is-system-running*) echo stopping; exit 1;; *) echo;; esac')
    assert evidence(node, "mark").returncode == 0
    boots(node, BOOT)
    journal(node, entry(0, "x"), kernel="sbsa-gwdt sbsa-gwdt.0: System reset by WDT.")
    collect(node)
    assert exported(node)["boot_clean"] == 0


def test_a_boot_whose_journal_ended_with_a_shutdown_is_clean(node: Path) -> None:
    """As after the first run of the role: nothing marked the end of the boot before."""
    at = time.time() - DIED - 60
    boots(node, BOOT)
    journal(
        node, entry(at, "Reached target reboot.target - System Reboot.", "systemd"), entry(at, "Shutting down.", "x")
    )
    collect(node)
    assert exported(node)["boot_clean"] == 1


def test_a_boot_without_a_sign_of_a_shutdown_is_not_clean(node: Path) -> None:
    """A program other than systemd may write anything."""
    journal(node, entry(0, "Reached target reboot.target - System Reboot.", "tricky"))
    collect(node)
    found = exported(node)
    assert found["boot_clean"] == 0
    assert found["crash_records{place=archive}"] == 0


def test_the_first_boot_that_knows_nothing_of_the_one_before_says_nothing(node: Path) -> None:
    journal(node, code=1)
    collect(node)
    assert "boot_clean" not in exported(node)
    # The next one would have the mark.
    boots(node, LATER)
    collect(node)
    assert exported(node)["boot_clean"] == 0


def test_records_of_a_panic(node: Path) -> None:
    write(node, f"{BLACKBOX}/boots/{BEFORE}/evidence.json", json.dumps({"boot": BEFORE, "made": 1.0, "pstore": []}))
    write(node, "/var/lib/systemd/pstore/1795000000/dmesg.txt", PANIC)
    write(node, "/sys/fs/pstore/dmesg-efi_pstore-179500000000001", PANIC)
    write(node, "/sys/fs/pstore/dmesg-efi_pstore-179500000000002", PANIC)
    collect(node)
    found = exported(node)
    assert of(found, "crash_records") == {"place=archive": 1, "place=pstore": 2}
    assert found["boot_clean"] == 0


def write_journal(path: Path, *seconds: float) -> None:
    """Make a file of the journal with entries of these times, by the program that receives journals."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = "".join(
        f"__REALTIME_TIMESTAMP={round(second * 1e6)}\n__MONOTONIC_TIMESTAMP={round(second * 1e6)}\n_BOOT_ID={BOOT}\n"
        f"_MACHINE_ID={'d' * 32}\nMESSAGE=line at {second}\n\n"
        for second in seconds
    )
    words = [str(JOURNAL_REMOTE), f"--output={path}", "--split-mode=none", "-"]
    done = subprocess.run(words, input=entries, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not JOURNAL_REMOTE.exists(), reason="systemd-journal-remote is not installed")
def test_journals_have_the_time_of_their_newest_entry(node: Path) -> None:
    """As journalctl shows it. A file that was archived counts while the new one has no entry."""
    write_journal(node / f"var/log/journal/{'d' * 32}/system.journal", 1_795_000_000.25, 1_795_000_007.5)
    remote = node / "var/log/journal/remote"
    write_journal(remote / "remote-spark2.journal", 1_795_000_001.0)
    write_journal(remote / "remote-spark3@0123-45-67.journal", 1_795_000_002.0)
    write_journal(remote / "remote-spark3.journal")
    write_journal(remote / "remote-spark4.journal")
    write(node, "/var/log/journal/remote/remote-spark5.journal.part", "no journal")
    found = exported(node)
    assert found["journal_newest_timestamp_seconds"] == 1_795_000_007.5
    assert of(found, "journal_received_timestamp_seconds") == {
        "sender=spark2": 1_795_000_001.0,
        "sender=spark3": 1_795_000_002.0,
        "sender=spark4": 0,
    }
    shown = ["journalctl", f"--file={remote}/remote-spark2.journal", "--output=short-unix", "--quiet"]
    assert subprocess.run(shown, capture_output=True, text=True, check=True).stdout.startswith("1795000001.000000 ")


def test_messages_of_kernels_have_the_time_of_the_last_one(node: Path) -> None:
    """The receiver makes an empty file of each sender when it starts, and when a file is full."""
    folder = f"{BLACKBOX}/netconsole"
    for name, text, when in (
        ("spark2.log", "a message\n", 1_795_000_100),
        ("spark3.log", "", 1_795_000_100),
        ("spark3.log.1", "a message\n", 1_795_000_050),
        ("spark4.log", "", 1_795_000_100),
    ):
        os.utime(write(node, f"{folder}/{name}", text), (when, when))
    assert of(exported(node), "netconsole_received_timestamp_seconds") == {
        "sender=spark2": 1_795_000_100,
        "sender=spark3": 1_795_000_050,
        "sender=spark4": 0,
    }


@pytest.mark.parametrize("name", ['spark2"} 1\n#', "sp\u00e4rk", "spark2\\", "-x"])
def test_a_file_that_no_sender_has_is_not_a_sender(node: Path, name: str) -> None:
    """Its name would make a file of metrics that the exporter refuses, or one that cannot be written."""
    write(node, f"{BLACKBOX}/netconsole/{name}.log", "a message\n")
    write(node, f"{BLACKBOX}/netconsole/spark3.log", "a message\n")
    assert set(of(exported(node), "netconsole_received_timestamp_seconds")) == {"sender=spark3"}


def unreadable_guard(root: Path) -> None:
    """Let the journal have a line of the guard without its time."""
    guarded(root)
    write(root, "/guard", "{}\n")


def guarded(root: Path, *entries: tuple[float, str], code: int = 0) -> None:
    """Let the journal have these lines of the memory guard."""
    write(root, "/etc/systemd/system/sparkrack-memory-guard.service")
    lines = [json.dumps({"__REALTIME_TIMESTAMP": str(round(when * 1e6)), "MESSAGE": text}) for when, text in entries]
    write(root, "/guard", "".join(f"{line}\n" for line in lines))
    stand_in(
        root,
        "journalctl",
        f'case "$*" in *--unit=sparkrack-memory-guard.service*) cat {root}/guard; exit {code};; esac',
    )


def test_what_the_memory_guard_ended(node: Path) -> None:
    """By the sentence that its script writes."""
    script = (REPOSITORY / "roles/memory/templates/memory-guard.sh").read_text()
    assert ": ended every container in @SLICE@" in script
    low = "3000 KiB of memory are available, less than the floor of 4000 KiB"
    guarded(
        node,
        (100.0, f"{low}: ended every container in container.slice"),
        (200.5, f"{low}: ended every container in container.slice"),
        (300.0, "armed again: 9000 KiB of memory are available"),
        (400.0, f"{low}: no container runs in container.slice, so nothing was ended"),
    )
    assert exported(node)["memory_guard_kill_timestamp_seconds"] == 200.5
    guarded(node, (100.0, "armed: ends every container in container.slice when less than 4000 KiB"))
    assert "memory_guard_kill_timestamp_seconds" not in exported(node)


def measured(root: Path, **changed: Any) -> Path:
    """The record of a measurement, as the gate of a unit writes it."""
    here = {"boot": f"{BOOT[:8]}-{BOOT[8:12]}-{BOOT[12:16]}-{BOOT[16:20]}-{BOOT[20:]}", "carrier_changes": 4}
    found = {
        "half": "enp1s0f1np1",
        "peer": "spark2",
        "gbps": 108.4,
        "least": 80.0,
        "measured": "2026-11-25T05:00:00Z",
        "here": here,
        "there": {"boot": "another", "carrier_changes": 2},
    }
    path = root / "var/lib/sparkrack/serve/rdma/enp1s0f1np1.spark2.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    serve_unit.write_record(str(path), {**found, **changed})
    return path


HALF = "device=enp1s0f1np1,peer=spark2"


def test_a_measurement_counts_for_its_boot_and_its_carrier(node: Path) -> None:
    carrier = "/sys/class/net/enp1s0f1np1/carrier_changes"
    write(node, carrier, "4\n")
    measured(node)
    found = exported(node)
    assert found[f"bandwidth_bits_per_second{{{HALF}}}"] == 108.4e9
    assert found[f"bandwidth_least_bits_per_second{{{HALF}}}"] == 80e9
    assert found[f"bandwidth_record_current{{{HALF}}}"] == 1
    write(node, carrier, "6\n")
    assert exported(node)[f"bandwidth_record_current{{{HALF}}}"] == 0
    write(node, carrier, "4\n")
    boots(node, LATER)
    assert exported(node)[f"bandwidth_record_current{{{HALF}}}"] == 0
    boots(node, BOOT)
    (node / carrier.lstrip("/")).unlink()
    assert exported(node)[f"bandwidth_record_current{{{HALF}}}"] == 0


@pytest.mark.parametrize("changed", [{"gbps": "fast"}, {"least": None}, {"half": 'x"} 1'}, {"peer": 7}])
def test_a_damaged_record_is_unread(node: Path, changed: dict[str, Any]) -> None:
    measured(node, **changed)
    why = "/var/lib/sparkrack/serve/rdma/enp1s0f1np1.spark2.json: is not a record of a measurement"
    assert not of(exported(node, "bandwidth", why), "bandwidth_bits_per_second")


def test_the_state_of_a_unit_and_until_when_it_may_start(node: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As its coordinator records the state on the head, by the limits of the unit's file on that node."""
    found = locked(unit(probe={"ready": "40m"}))
    write(node, "/etc/sparkrack/serve/one.json", serving_units.content(desired.files(found, "n0"), "one.json"))
    kept = SteppedUnit(tmp_path_factory.mktemp("unit"))
    write(node, "/var/lib/sparkrack/serve/one.rank.json", '{"state": "running"}')

    def shown() -> tuple[list[str], float | None]:
        serve_unit.write_record(str(node / "var/lib/sparkrack/serve/one.json"), kept.saved)
        values = exported(node)
        assert set(of(values, "unit_state").values()) == {1}
        return [*of(values, "unit_state")], values.get("unit_start_deadline_timestamp_seconds{unit=one}")

    assert kept.lifecycle.set_desired_state("up", False, kept.clock)[0]
    assert shown() == (["state=gating,unit=one"], kept.record.since + desired.GATE_LIMIT)
    kept.pass_by(8)
    assert shown() == (["state=starting,unit=one"], kept.record.since + 40 * 60)
    kept.prove()
    assert shown() == (["state=ready,unit=one"], None)
    kept.record.phases["graphs"] = {"begin": 1.0, "seconds": None}
    serve_unit.write_record(str(node / "var/lib/sparkrack/serve/one.json"), asdict(kept.record))
    assert of(exported(node), "unit_start_phase_seconds") == {"phase=gates,unit=one": 4}, "of an open phase none"
    kept.ended.add(1)
    kept.pass_by(8)
    assert shown() == (["state=held,unit=one"], None)
    # A unit that is removed from rack.yaml leaves its record.
    kept.up()
    kept.saved["state"] = "starting"
    (node / "etc/sparkrack/serve/one.json").unlink()
    assert shown() == (["state=starting,unit=one"], None)


def test_models_differ_by_their_files(node: Path, tmp_path: Path) -> None:
    """As the program records them that fetches models: two nodes with the same files have one digest."""
    digests = []
    for name in ("qwen", "same", "less"):
        store = LocalStore(tmp_path / name)
        files = model() if name != "less" else dict(list(model().items())[1:])
        for path, content in files.items():
            (store.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (store.folder / path).write_bytes(content)
        assert store.fetch(store.job(files, None))[-1] == "sparkrack: ended 0"
        (node / "srv/models").mkdir(parents=True, exist_ok=True)
        store.folder.rename(node / "srv/models" / name)
    found = of(exported(node), "model_info")
    for name in ("qwen", "same", "less"):
        (digest,) = (key.split(",")[0] for key in found if key.endswith(f"model={name}"))
        digests.append(digest)
    assert digests[0] == digests[1] != digests[2]
    # A file that has changed since its sha256 was right does not count, nor does what is not a model.
    (node / "srv/models/same" / next(iter(model()))).write_bytes(b"other")
    (node / "srv/models/link").symlink_to("qwen")
    (node / "srv/models/by hand").mkdir()
    found = of(exported(node), "model_info")
    assert f"{digests[0]},model=qwen" in found
    assert f"{digests[0]},model=same" not in found
    assert len(found) == 3


def strange_openssl(root: Path) -> None:
    write(root, "/etc/sparkrack/blackbox/node.pem", "")
    stand_in(root, "openssl", "echo notAfter=soon")


def test_the_ends_of_the_certificates(node: Path) -> None:
    """Of those that role blackbox makes; without them there is no series."""
    assert of(exported(node), "certificate_expiry_timestamp_seconds") == {}
    public = key(node)
    RackAuthority(node, "two").make()
    authority = RackAuthority(node, "two")
    ends = {}
    for name, pem in (("node", authority.sign(public, "spark1", "10.77.0.11")), ("ca", authority.pem or b"")):
        (node / f"etc/sparkrack/blackbox/{name}.pem").write_bytes(pem)
        ends[f"certificate={name}"] = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    found = exported(node)
    for labels, end in ends.items():
        assert found[f"certificate_expiry_timestamp_seconds{{{labels}}}"] == int(end)


def large(path: Path) -> None:
    """Make a file of 1 TiB that takes no room on the disk."""
    os.truncate(path, 2**40)


def fifo(path: Path) -> None:
    """Replace a file by one whose reader waits."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("part", "break_it", "why"),
    [
        ("boot", lambda root: write(root, EVIDENCE, "{"), f"{EVIDENCE}: is not a JSON object"),
        (
            "kernel",
            lambda root: (root / "proc/sys/kernel/panic").unlink(),
            "/proc/sys/kernel/panic: No such file or directory",
        ),
        ("units", lambda root: stand_in(root, "systemctl", "echo 'no bus' >&2; exit 1"), "systemctl: no bus"),
        (
            "units",
            lambda root: stand_in(root, "systemctl", "echo what"),
            "systemctl: no answer for systemd-journal-upload.service",
        ),
        (
            "journal",
            lambda root: write(root, f"/var/log/journal/{'d' * 32}/system.journal", "none"),
            "system.journal: is not a file of the journal",
        ),
        (
            "received",
            lambda root: write(root, "/var/log/journal/remote/remote-spark2.journal", "none"),
            "remote-spark2.journal: is not a file of the journal",
        ),
        ("certificates", lambda root: write(root, "/etc/sparkrack/blackbox/node.pem", "none"), "openssl: "),
        ("certificates", strange_openssl, "openssl: unexpected output 'notAfter=soon"),
        ("guard", lambda root: guarded(root, code=1), "journalctl: exit 1"),
        ("guard", unreadable_guard, "journalctl: unexpected output '{}'"),
        (
            "bandwidth",
            lambda root: write(root, "/var/lib/sparkrack/serve/rdma/x.y.json", "[]"),
            "/var/lib/sparkrack/serve/rdma/x.y.json: is not a JSON object",
        ),
        (
            "serving",
            lambda root: write(root, "/var/lib/sparkrack/serve/one.json", '{"state": "starting"}'),
            "/var/lib/sparkrack/serve/one.json: is not a record of a coordinator",
        ),
        # What json and float raise and no program expects.
        ("boot", lambda root: write(root, EVIDENCE, '{"a": ' * 50_000), f"{EVIDENCE}: is not a JSON object"),
        ("bandwidth", lambda root: measured(root, gbps=10**400), "OverflowError: int too large"),
        # Two values of one series: the exporter would refuse the whole file.
        (
            "bandwidth",
            lambda root: shutil.copy(measured(root), measured(root).with_name("copy.json")),
            "sparkrack_bandwidth_bits_per_second: two values for {",
        ),
        # A file that would take all memory of the service, and one that never ends.
        ("boot", lambda root: large(write(root, EVIDENCE)), f"{EVIDENCE}: has more than 4 MiB"),
        ("boot", lambda root: fifo(write(root, EVIDENCE)), "evidence.json: is not a regular file"),
        (
            "received",
            lambda root: fifo(write(root, "/var/log/journal/remote/remote-spark2.journal")),
            "remote-spark2.journal: is not a regular file",
        ),
    ],
)
def test_a_part_that_cannot_be_read_is_reported_and_the_others_stay(
    node: Path, part: str, break_it: Any, why: str
) -> None:
    break_it(node)
    found = exported(node, part, why)
    assert len(of(found, "node_metrics_unread")) == 12
    assert "node_metrics_timestamp_seconds" in found


def test_a_folder_that_is_not_there_is_an_error_of_one_line(node: Path) -> None:
    words = [sys.executable, "-I", str(PROGRAM), "--metrics", str(node / "none/x.prom"), "--root", str(node)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("none/x.prom: No such file or directory")
    assert "Traceback" not in done.stderr


def test_the_cases_have_the_hashes_of_now() -> None:
    """Of the program and of its units: UPDATE_DOCS=1 renews them in tests/cases/operations/watch*."""
    files = {file.path: file.state.sha256 for file in node_metrics.files(loaded(SWITCH))}
    for case in (OPERATIONS / "watch.set.yaml", *sorted((OPERATIONS / "watch").glob("*.yaml"))):
        text = case.read_text()
        for path, sha256 in files.items():
            hashed = re.findall(rf"\b([0-9a-f]{{64}}) {path}$", text, re.MULTILINE)
            for old in (one for one in hashed if one not in (sha256, OTHER)):
                assert os.environ.get("UPDATE_DOCS"), f"{case}: {path} has the hash of another program"
                text = text.replace(f"{old} {path}", f"{sha256} {path}")
        if os.environ.get("UPDATE_DOCS"):
            case.write_text(text)


def test_a_file_of_the_kernel_is_read() -> None:
    """One read of 4 MiB from it fails."""
    file = Path("/proc/sys/kernel/random/boot_id")
    program = runpy.run_path(str(PROGRAM))
    assert len(program["beginning"](file, program["LARGEST"] + 1)) == len(file.read_bytes()) == 37


@pytest.mark.parametrize("text", ["a\nb", 'a"b', "a\\b"])
def test_a_label_that_the_exporter_refuses_leaves_its_part_out_with_the_text(text: str) -> None:
    program = runpy.run_path(str(PROGRAM))
    refused = iter([program["Sample"]("sparkrack_x", {"name": text}, 1)])
    with pytest.raises(program["UnreadError"], match=r"^sparkrack_x: a label cannot have the text "):
        program["checked"](refused)

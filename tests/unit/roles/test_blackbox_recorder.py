"""The flight recorder of the role blackbox, run as a process on the files of a node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.ops.shells import write
from tests.unit.roles.recorder_runs import (
    BOOT,
    LIMIT,
    LINE,
    PROGRAM,
    dumped,
    node,
    program,
    recorder,
    recording,
    sampled,
    standin,
    until,
)

GPU = {
    "state": "ok",
    "clock": 2177,
    "power": 57.31,
    "temperature": 61,
    "margin": 13,
    "utilization": 0.42,
    "pstate": "P0",
    "reasons": ["sw_power_cap", "sw_thermal"],
}
NO_EVENTS = {"xid": 0, "nvrm_no_memory": 0, "aer": 0, "soft_lockup": 0, "oops": 0}
BODY = {"time": 1.5, "node": "spark1", "zones": {}, "carrier": {}, "gpu": {"state": "absent"}, "log": None}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the node in `root`."""
    node(tmp_path / "root")
    return tmp_path


def kernel_says(place: Path, first: int, *lines: str, priority: int = 4) -> None:
    """Append lines as /dev/kmsg has them."""
    with (place / "root/dev/kmsg").open("a") as file:
        for number, line in enumerate(lines, first):
            file.write(f"{priority},{number},{1000 * number},-;{line}\n SUBSYSTEM=pci\n")


# A sample


def test_a_sample_has_everything(place: Path) -> None:
    with recording(place):
        sampled(place / "ring", lambda one: one["gpu"]["state"] == "ok" and one["zones"] and one["events"]["xid"] == 0)
    *_, one = dumped(place / "ring")
    assert abs(time.time() - one.pop("time")) < LIMIT
    assert one.pop("uptime") > 0
    assert one.pop("sequence") > 0
    assert one == {
        "boot": BOOT,
        "node": "spark1",
        "memory": {"total": 128849018880, "available": 107374182400},
        "pressure": {"some": 1.5, "full": 0.25},
        "load": 0.5,
        "gpu": GPU,
        "zones": {"acpitz:0": 61.0, "acpitz:1": 62.5, "wifi": 40.0},
        "carrier": {"enp1s0f0np0": 1, "enP7s7": 0},
        "events": NO_EVENTS,
    }


def test_what_cannot_be_read_is_null(place: Path) -> None:
    root = place / "root"
    shutil.rmtree(root / "proc/pressure")
    (root / "proc/loadavg").unlink()
    (root / "dev/kmsg").unlink()
    write(root, "/proc/meminfo", "MemTotal: 8 kB\n")
    write(root, "/sys/class/thermal/thermal_zone0/temp", "")
    (root / "sys/class/net/enP7s7/carrier").unlink()
    with recording(place, body="sys.exit('NVIDIA-SMI has failed')"):
        until(lambda: "NVIDIA-SMI has failed" in (place / "log").read_text(), "the reason")
        one = sampled(place / "ring", lambda one: one["zones"] and one["gpu"]["state"] == "absent")
    assert one["memory"] == {"total": 8192, "available": None}
    assert (one["pressure"], one["load"]) == (None, None)
    assert one["gpu"] == {"state": "absent", **dict.fromkeys(key for key in GPU if key != "state")}
    assert (one["zones"]["acpitz:0"], one["carrier"]["enP7s7"]) == (None, None)
    assert one["events"] == dict.fromkeys(NO_EVENTS)


def test_an_interface_that_disappears_and_returns(place: Path) -> None:
    """DGX OS removes a function of the card while its cable is unplugged."""
    folder = place / "root/sys/class/net/enp1s0f0np0"
    with recording(place):
        sampled(place / "ring", lambda one: one["carrier"] == {"enp1s0f0np0": 1, "enP7s7": 0})
        shutil.move(folder, place / "away")
        sampled(place / "ring", lambda one: one["carrier"] == {"enP7s7": 0})
        shutil.move(place / "away", folder)
        sampled(place / "ring", lambda one: one["carrier"] == {"enp1s0f0np0": 1, "enP7s7": 0})


# The GPU


def test_nvidia_smi_that_hangs(place: Path) -> None:
    """Samples go on with the state stale; it is ended, and the next one gives values again."""
    body = f"""
if os.path.exists("{place}/hung"):
    print("{LINE}", flush=True)
    while True:
        print("{LINE}", flush=True)
        time.sleep(period)
print("{LINE}", flush=True)
open("{place}/hung", "w").write(str(os.getpid()))
time.sleep(3600)
"""
    with recording(place, body=body):
        before = sampled(place / "ring", lambda one: one["gpu"]["state"] == "ok")
        stale = sampled(place / "ring", lambda one: one["gpu"]["state"] == "stale")
        assert stale["gpu"] == {"state": "stale", **dict.fromkeys(key for key in GPU if key != "state")}
        hung = int((place / "hung").read_text())
        after = sampled(place / "ring", lambda one: one["gpu"] == GPU and one["sequence"] > stale["sequence"])
        assert not Path(f"/proc/{hung}").exists(), "the one that hung is left"
    found = [one["sequence"] for one in dumped(place / "ring")]
    assert found == list(range(found[0], found[-1] + 1)), "samples were missed"
    assert before["sequence"] < stale["sequence"] < after["sequence"]
    assert "printed nothing for 10 s and is ended" in (place / "log").read_text()


def test_nvidia_smi_that_dies_is_started_again(place: Path) -> None:
    body = f"""
open("{place}/started", "a").write("x")
for _ in range(3):
    print("{LINE}", flush=True)
    time.sleep(period)
"""
    with recording(place, body=body):
        until(lambda: (place / "started").exists() and len((place / "started").read_text()) >= 3, "the third start")
        sampled(place / "ring", lambda one: one["gpu"]["state"] == "ok")


def test_nvidia_smi_that_is_installed_later(place: Path) -> None:
    with recording(place, "--nvidia-smi", place / "later/nvidia-smi"):
        sampled(place / "ring", lambda one: one["gpu"]["state"] == "absent")
        standin(place / "later")
        sampled(place / "ring", lambda one: one["gpu"] == GPU)


def test_a_field_that_the_driver_does_not_know(place: Path) -> None:
    body = f"""
if "temperature.gpu.tlimit" in query:
    print('Field "temperature.gpu.tlimit" is not a valid field to query.')
    sys.exit(2)
while True:
    print("{LINE.replace(" 13,", "")}", flush=True)
    time.sleep(period)
"""
    with recording(place, body=body):
        one = sampled(place / "ring", lambda one: one["gpu"]["state"] == "ok")
    assert one["gpu"] == {**GPU, "margin": None}


@pytest.mark.parametrize(
    ("key", "word", "value"),
    [
        ("clock", "2177", 2177),
        ("clock", "[N/A]", None),
        ("clock", "[Unknown Error]", None),
        ("power", "57.31", 57.31),
        ("margin", "-7", -7),
        ("utilization", "100", 1.0),
        ("pstate", "P15", "P15"),
        ("pstate", "P0; reboot", None),
        ("reasons", "0x0000000000000000", []),
        (
            "reasons",
            "0x00000000000001E8",
            ["hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks"],
        ),
        ("reasons", "Active", None),
    ],
)
def test_values_of_nvidia_smi(key: str, word: str, value: Any) -> None:
    assert recorder._gpu_value(key, word) == value


# The kernel's log

LINES = {
    "xid": "NVRM: Xid (PCI:000F:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "nvrm_no_memory": "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] @ mem_desc.c",
    "aer_corrected": "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer",
    "aer_nonfatal": "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link",
    "aer_fatal": "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
    "ras_ce": "{1}[Hardware Error]: event severity: corrected",
    "ras_ue": "{1}[Hardware Error]: event severity: recoverable",
    "soft_lockup": "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python3:1234]",
    "rcu_stall": "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "oops": "Internal error: Oops: 0000000096000004 [#1] SMP",
}
OTHERS = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.159",
    "Out of memory: Killed process 1234 (python3)",
    "pcieport 0000:00:00.0: AER: Corrected error message received from 0000:01:00.0",
    "Modules linked in: nvidia_uvm(OE) [last unloaded: x]",
)


def counts(place: Path) -> dict[str, int] | None:
    """The counts of all events in the newest record."""
    found = recorder.read_ring(place / "ring")[0] if (place / "ring").exists() else []
    log = found[-1].body["log"] if found else None
    return None if log is None else dict(zip(recorder.EVENTS, log[1:], strict=True))


def test_events_of_the_kernel_are_counted(place: Path) -> None:
    """Each line is one event; what a program writes to the log is none, and a line of before is none later."""
    assert LINES.keys() == recorder.EVENTS.keys()
    kernel_says(place, 5, *LINES.values(), *OTHERS)
    kernel_says(place, 100, *LINES.values(), priority=12)
    with recording(place):
        until(lambda: counts(place) == dict.fromkeys(LINES, 1), "one of each")
        kernel_says(place, 200, LINES["xid"])
        until(lambda: (counts(place) or {}).get("xid") == 2, "the second Xid")
    *_, one = dumped(place / "ring")
    assert one["events"] == {"xid": 2, "nvrm_no_memory": 1, "aer": 3, "soft_lockup": 1, "oops": 1}


def test_events_are_counted_once_over_a_restart(place: Path) -> None:
    kernel_says(place, 5, LINES["xid"])
    with recording(place):
        until(lambda: (counts(place) or {}).get("xid") == 1)
    (place / "root/dev/kmsg").write_text("")  # the kernel overwrote it
    kernel_says(place, 9, LINES["oops"])
    with recording(place):
        until(lambda: (counts(place) or {}).get("oops") == 1)
        assert (counts(place) or {})["xid"] == 1
    write(place / "root", "/proc/sys/kernel/random/boot_id", "f" * 32)
    with recording(place):
        one = sampled(place / "ring", lambda one: one["boot"] == "f" * 32 and one["events"]["oops"])
    assert one["events"] == {**NO_EVENTS, "oops": 1}, "events of another boot"


# The ring


def test_the_newest_samples_stay(tmp_path: Path) -> None:
    ring = recorder.Ring(tmp_path / "ring", 10)
    for sequence in range(100, 125):
        ring.put(sequence, recorder.encode(sequence, BOOT, dict(BODY)))
        ring.sync()
    assert (tmp_path / "ring").stat().st_size == 10 * recorder.SIZE
    assert [one["sequence"] for one in dumped(tmp_path / "ring")] == list(range(115, 125))


def test_a_ring_is_filled_with_zeros(tmp_path: Path) -> None:
    """Else a sync of a sample is one of the file system's tables as well."""
    recorder.Ring(tmp_path / "ring", 1000)
    assert (tmp_path / "ring").stat().st_blocks * 512 >= 1000 * recorder.SIZE
    assert recorder.read_ring(tmp_path / "ring") == ([], 0)


@pytest.mark.parametrize("slots", [4, 25])
def test_another_size_keeps_the_newest(tmp_path: Path, slots: int) -> None:
    ring = recorder.Ring(tmp_path / "ring", 10)
    for sequence in range(100, 118):
        ring.put(sequence, recorder.encode(sequence, BOOT, dict(BODY)))
    os.close(ring._file)
    other = recorder.Ring(tmp_path / "ring", slots)
    assert other.newest is not None
    assert other.newest.sequence == 117
    assert (tmp_path / "ring").stat().st_size == slots * recorder.SIZE
    kept = min(slots, 10)
    assert [one["sequence"] for one in dumped(tmp_path / "ring")] == list(range(118 - kept, 118))


def test_a_second_recorder_is_refused(place: Path) -> None:
    with recording(place):
        until(lambda: dumped(place / "ring"))
        before = (place / "ring").stat()
        done = subprocess.run(
            [
                sys.executable,
                "-B",
                PROGRAM,
                "record",
                "--root",
                place / "root",
                "--ring",
                place / "ring",
                "--rate",
                "4",
                "--keep",
                "700",
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, f"recorder: {place}/ring: another recorder writes it\n")
    after = (place / "ring").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size), "the first recorder writes a removed file"


def test_a_hostile_ring_of_another_size_keeps_its_records(tmp_path: Path) -> None:
    """A peer fills its own ring; nothing in it keeps the receiver from a start with other options.

    Text that is not ASCII grows when JSON is written again, beyond the room of a record.
    """
    made = recorder.Ring(tmp_path / "ring", 20)
    grows = "\u00fc" * 450
    texts = ('{"node":"spark1"}', f'{{"node":"{grows}","zones":7}}', '{"a":1}')
    for number, text in enumerate(texts):
        raw = text.encode()
        head = recorder.HEADER.pack(recorder.MAGIC, 0, recorder.VERSION, len(raw), 0, number, bytes(16))
        record = bytearray(head + raw.ljust(recorder.ROOM, b"\0"))
        struct.pack_into("<I", record, 4, zlib.crc32(record[recorder.CHECKED_FROM :]))
        made.put(number, bytes(record))
    os.close(made._file)
    recorder.Ring(tmp_path / "ring", 40)
    assert [one.sequence for one in recorder.read_ring(tmp_path / "ring")[0]] == [0, 1, 2]


@pytest.mark.parametrize("cut", [4, 8, 100, 512, 1000, 1023])
def test_a_torn_record_is_recognised(cut: int) -> None:
    """The first bytes of a record, and then those of the record that was in its place."""
    old = recorder.encode(7, BOOT, {**BODY, "time": 1.0})
    new = recorder.encode(17, BOOT, {**BODY, "time": 2.0, "zones": {f"zone{n}": 50.5 for n in range(60)}})
    torn = new[:cut] + old[cut:]
    found = recorder.decode(torn)
    assert found is None or torn in (old, new)
    assert recorder.decode(new).sequence == 17  # type: ignore[union-attr]


def test_every_bit_is_covered() -> None:
    whole = recorder.encode(17, BOOT, dict(BODY))
    for byte in range(recorder.SIZE):
        bad = bytearray(whole)
        bad[byte] ^= 1 << byte % 8
        assert recorder.decode(bytes(bad)) is None, byte


def test_a_record_of_a_node_with_many_devices() -> None:
    """Zones are left out before interfaces; memory, GPU and events never."""
    body = {
        **BODY,
        "gpu": GPU,
        "zones": {f"zone{n}": 50.5 for n in range(90)},
        "carrier": {f"en{n}": 1 for n in range(20)},
    }
    record = recorder.encode(1, BOOT, body)
    found = recorder.decode(record)
    assert found is not None
    assert len(record) == recorder.SIZE
    assert len(found.body["carrier"]) == 20
    assert 0 < len(found.body["zones"]) < 90
    assert found.body["gpu"] == GPU


def test_kill_9_while_it_writes(place: Path) -> None:
    """Each start goes on above the record before; no record is torn, and none in the middle is missing."""
    starts = 8
    for start in range(starts):
        with recording(place) as started:
            before = recorder.read_ring(place / "ring")[0][-1].sequence if start else 0

            def grew(before: int = before) -> bool:
                found = recorder.read_ring(place / "ring")[0] if (place / "ring").exists() else []
                return bool(found) and found[-1].sequence >= before + 2

            until(grew, "the second sample")
            started.send_signal(signal.SIGKILL)
            started.wait()
    records, torn = recorder.read_ring(place / "ring")
    assert torn == 0
    found = [record.sequence for record in records]
    assert found == list(range(found[0], found[-1] + 1))
    assert len(found) >= 2 * starts - 1


def test_sigterm_ends_it_after_the_last_sample(place: Path) -> None:
    with recording(place) as started:
        until(lambda: dumped(place / "ring"))
        started.send_signal(signal.SIGTERM)
        assert started.wait(LIMIT) == 0
    assert "0 not written" in (place / "log").read_text()


def test_it_ends_after_the_seconds_that_were_asked_for(place: Path) -> None:
    with recording(place, "--seconds", 1) as started:
        assert started.wait(LIMIT) == 0
    assert 1 <= len(dumped(place / "ring")) <= 5


def test_it_ends_before_the_first_sample(place: Path) -> None:
    (place / "textfile").mkdir()
    with recording(place, "--seconds", 0, "--metrics", place / "textfile/x.prom") as started:
        assert started.wait(LIMIT) == 0
    assert "0 samples in" in (place / "log").read_text()
    assert dumped(place / "ring") == []


class HungRing(recorder.Ring):
    """A ring on a disk that hangs until it is released."""

    released = threading.Event()

    def sync(self) -> None:
        self.released.wait()
        super().sync()


def test_a_disk_that_hangs(tmp_path: Path) -> None:
    """Samples are handed over all the same, the newest wait for the disk, and what is lost is counted."""
    ring = HungRing(tmp_path / "ring", 1000)
    disk = recorder.Disk(ring, tmp_path / "ring", 1000, None, tmp_path)
    disk.start()
    for sequence in range(200):
        disk.put(sequence, float(sequence), recorder.encode(sequence, BOOT, dict(BODY)))
    assert disk.last_sample is None
    HungRing.released.set()
    disk.end()
    found = [record.sequence for record in recorder.read_ring(tmp_path / "ring")[0]]
    assert found[-recorder.WAITING :] == list(range(200 - recorder.WAITING, 200))
    assert disk.dropped == 200 - len(found)
    assert len(found) <= 2 * recorder.WAITING, "more wait than may"
    assert disk.last_sample == 199.0


# dump


def test_dump_of_anything_else(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x" * 100)
    (tmp_path / "empty").write_bytes(b"")
    for name, reason in (
        ("short", "is not a ring: 100 bytes, wanted a multiple of 1024"),
        ("empty", "is not a ring: 0 bytes"),
        ("none", "No such file or directory"),
        (".", "Is a directory"),
    ):
        done = subprocess.run(
            [sys.executable, "-B", PROGRAM, "dump", tmp_path / name],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_dump_of_a_ring_with_torn_and_hostile_records(tmp_path: Path) -> None:
    """A peer writes any text into its own records: it is printed as JSON or left out, and ends nothing."""

    def forged(sequence: int, text: bytes) -> bytes:
        head = recorder.HEADER.pack(recorder.MAGIC, 0, recorder.VERSION, len(text), 0, sequence, bytes(16))
        record = bytearray(head + text.ljust(recorder.ROOM, b"\0"))
        struct.pack_into("<I", record, 4, zlib.crc32(record[recorder.CHECKED_FROM :]))
        return bytes(record)

    places = [
        recorder.encode(1, BOOT, {**BODY, "node": "\x1b[2Jspark1"}),
        forged(2, b"[" * 900),
        forged(3, b"\xff\xfe"),
        forged(4, b'{"log": ["x"], "gpu": 7}'),
        b"\1" * recorder.SIZE,
        bytes(recorder.SIZE),
    ]
    (tmp_path / "ring").write_bytes(b"".join(places))
    done = subprocess.run(
        [sys.executable, "-B", PROGRAM, "dump", tmp_path / "ring"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert [json.loads(line)["sequence"] for line in done.stdout.splitlines()] == [1, 4]
    assert done.stderr == f"{tmp_path}/ring: 3 torn records\n"


def test_dump_of_the_newest(tmp_path: Path) -> None:
    ring = recorder.Ring(tmp_path / "ring", 10)
    for sequence in range(5):
        ring.put(sequence, recorder.encode(sequence, BOOT, dict(BODY)))
    done = subprocess.run(
        [sys.executable, "-B", PROGRAM, "dump", "--last", "2", tmp_path / "ring"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line)["sequence"] for line in done.stdout.splitlines()] == [3, 4]


# Metrics

RULES = {
    "sparkrack_gpu_clock_cap_hertz": {()},
    "sparkrack_gpu_clock_event": {("reason",)},
    "sparkrack_gpu_sm_clock_hertz": {()},
    "sparkrack_gpu_tlimit_margin_celsius": {()},
    "sparkrack_gpu_utilization_ratio": {()},
    "sparkrack_kernel_events_total": {("event",)},
    "sparkrack_pcie_link_gts": {("device",)},
    "sparkrack_pcie_link_width": {("device",)},
    "sparkrack_rdma_bytes_total": {("device", "direction", "half", "port")},
    "sparkrack_rdma_hw_total": {("counter", "device")},
    "sparkrack_recorder_last_sample_timestamp_seconds": {()},
}
"""The series that rules of alerts read, with their labels."""


def rdma(root: Path, name: str, function: str) -> None:
    """An RDMA device on a PCIe function."""
    folder = root / f"sys/devices/pci/{function}"
    for file, text in (("current_link_width", "4"), ("current_link_speed", "32.0 GT/s PCIe")):
        write(root, f"/sys/devices/pci/{function}/{file}", f"{text}\n")
    seen = root / f"sys/class/infiniband/{name}"
    for file, text in (
        ("counters/port_xmit_data", "1000"),
        ("counters/port_rcv_data", str(2**60)),
        ("hw_counters/out_of_sequence", "7"),
        ("hw_counters/lifespan", "10"),
    ):
        write(root, f"/sys/class/infiniband/{name}/ports/1/{file}", f"{text}\n")
    (seen / "device").symlink_to(folder)


def test_metrics(place: Path) -> None:
    root, folder = place / "root", place / "textfile"
    folder.mkdir()
    rdma(root, "rocep1s0f1", "0000:01:00.1")
    rdma(root, "roceP2p1s0f1", "0002:01:00.1")
    kernel_says(place, 1, LINES["xid"])
    with recording(place, "--metrics", folder / "x.prom", "--clock-cap", 2200) as started:
        sampled(place / "ring", lambda one: one["gpu"]["state"] == "ok" and one["events"]["xid"])
        started.send_signal(signal.SIGTERM)
        started.wait(LIMIT)
    text = (folder / "x.prom").read_text()
    found = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    labels: dict[str, set[tuple[str, ...]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).add(tuple(sorted(sample.labels)))
            assert sample.timestamp is None, "node_exporter refuses a file with timestamps"
    assert {name: labels.get(name) for name in RULES} == RULES
    assert found["sparkrack_gpu_sm_clock_hertz"].value == 2177e6
    assert found["sparkrack_gpu_clock_cap_hertz"].value == 2200e6
    assert 'sparkrack_gpu_clock_event{reason="sw_thermal"} 1\n' in text
    assert 'sparkrack_kernel_events_total{event="xid"} 1\n' in text
    assert 'sparkrack_rdma_bytes_total{device="roceP2p1s0f1",direction="tx",half="1",port="1"} 4000\n' in text
    assert f'sparkrack_rdma_bytes_total{{device="rocep1s0f1",direction="rx",half="0",port="1"}} {2**62}\n' in text
    assert 'sparkrack_rdma_hw_total{device="rocep1s0f1",counter="out_of_sequence"} 7\n' in text
    assert "lifespan" not in text
    assert 'sparkrack_pcie_link_gts{device="rocep1s0f1"} 32\n' in text
    assert abs(found["sparkrack_recorder_last_sample_timestamp_seconds"].value - time.time()) < LIMIT
    assert (folder / "x.prom").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.iterdir()] == ["x.prom"], "a part of a file is left"


@pytest.mark.soak
def test_metrics_are_written_every_15_seconds_and_without_stale_values(place: Path) -> None:
    folder = place / "textfile"
    folder.mkdir()
    body = f"""
print("{LINE}", flush=True)
while not os.path.exists("{place}/textfile/x.prom"):
    print("{LINE}", flush=True)
    time.sleep(period)
"""
    with recording(place, "--metrics", folder / "x.prom", body=body):
        until(lambda: (folder / "x.prom").exists(), "the first file")
        assert "sparkrack_gpu_sm_clock_hertz 2177000000\n" in (folder / "x.prom").read_text()
        standin(place / "bin", "sys.exit(9)")
        until(lambda: 'gpu_state{state="stale"} 1' in (folder / "x.prom").read_text(), "the state stale")
        until(lambda: "sparkrack_gpu_sm_clock_hertz" not in (folder / "x.prom").read_text(), "a file without a clock")


def test_a_folder_of_metrics_that_is_not_there(place: Path) -> None:
    with recording(place, "--metrics", place / "none/x.prom", "--seconds", 1) as started:
        assert started.wait(LIMIT) == 0
    assert f"{place}/none: there is no such folder" in (place / "log").read_text()
    assert dumped(place / "ring")


def test_halves_are_those_of_a_gb10() -> None:
    from core.hardware import gb10

    assert recorder.HALVES == gb10.HALVES


# Arguments


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["record"], "--ring"),
        (["record", "--ring", "x", "--rate", "5"], "5 is not a number from 1 to 4"),
        (["record", "--ring", "x", "--keep", "3601"], "3601 is not a number from 10 to 3600"),
        (["record", "--ring", "x", "--clock-cap", "10000"], "10000 is not a number from 300 to 9999"),
        (["record", "--ring", "x", "--clock-cap", "299"], "299 is not a number from 300 to 9999"),
        (["record", "--ring", "x", "--send", "spark2"], "spark2 is no NAME=ADDRESS"),
        (["record", "--ring", "x", "--send", "spark2=10.0.0.1"], "10.0.0.1 is no ADDRESS:PORT"),
        (["receive", "--folder", "x", "--listen", "y:z", "--peer", "a=1"], "y:z is no ADDRESS:PORT"),
        (["receive", "--folder", "x", "--listen", "127.0.0.1:0", "--peer", "../a=1"], "../a=1 is no NAME=ADDRESS"),
    ],
)
def test_wrong_arguments(arguments: list[str], reason: str) -> None:
    done = subprocess.run([sys.executable, "-B", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_ring_that_cannot_be_made(place: Path) -> None:
    with program("record", "--root", place / "root", "--ring", place / "none/ring", errors=place / "log") as started:
        assert started.wait(LIMIT) == 1
    assert (place / "log").read_text() == f"recorder: [Errno 2] No such file or directory: '{place}/none/.ring.new'\n"


@pytest.mark.skipif(not Path("/dev/kmsg").exists() or os.geteuid() != 0, reason="needs root and /dev/kmsg")
def test_it_runs_on_this_machine(tmp_path: Path) -> None:
    """The files of a real kernel."""
    with program("record", "--ring", tmp_path / "ring", "--seconds", 2, errors=tmp_path / "log") as started:
        assert started.wait(LIMIT) == 0
    *_, one = dumped(tmp_path / "ring")
    assert one["memory"]["available"] > 0
    assert one["load"] is not None
    assert one["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    assert one["events"]["soft_lockup"] is not None, (tmp_path / "log").read_text()

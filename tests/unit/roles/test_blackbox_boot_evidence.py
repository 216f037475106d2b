"""The program that collects the evidence of a boot, run as it is on a node, with files and stand-ins for its tools."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.generated import REPOSITORY
from tests.unit.ops.shells import stand_in, write

PROGRAM = REPOSITORY / "roles/blackbox/files/boot_evidence.py"
FOLDER = "/var/lib/sparkrack/blackbox"
BEFORE, NOW = "a" * 32, "b" * 32
DIED = 1_795_000_000.0
KEYS = "schema boot began made before clean pause_limit marker journal pstore earlier watchdogs kernel hardware feeding"
KEYS += " shutdown_limit bert nvme nvme_before unread"
PANIC = "<0>[  812.1] Kernel panic - not syncing: sysrq triggered crash\n<4>[  812.1] CPU: 3 PID: 1 Comm: sh\n"
NVME = '{"nvme_smart_health_information_log": {"unsafe_shutdowns": 7, "power_cycles": 41}}'


def entry(second: float, text: str, source: str = "kernel", boot: str = BEFORE, transport: str = "kernel") -> str:
    """One entry of `journalctl --output=json`."""
    stamp = str(int((DIED + second) * 1e6))
    found = {"_BOOT_ID": boot, "__REALTIME_TIMESTAMP": stamp, "SYSLOG_IDENTIFIER": source, "MESSAGE": text}
    if source == "kernel" and transport == "kernel":
        return json.dumps(found | {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"})
    if source == "systemd" and transport == "kernel":
        return json.dumps(found | {"_TRANSPORT": "journal", "SYSLOG_FACILITY": "3", "_PID": "1", "_COMM": "systemd"})
    return json.dumps(found | {"_TRANSPORT": transport, "_PID": "77", "_COMM": "logger"})


@pytest.mark.parametrize("name", ["kernel", "systemd"])
def test_a_program_that_calls_itself_the_kernel_or_systemd(node: Path, name: str) -> None:
    """The autopsy takes the words of both as a proof, and each user can run `logger --tag kernel`."""
    forged = entry(1, "Kernel panic - not syncing: x", name, transport="syslog")
    journal(node, entry(0, "x", name), forged, forged.replace('"77"', '"1"'))
    assert run(node, "collect").returncode == 0
    found = json.loads((node / FOLDER[1:] / f"boots/{NOW}/evidence.json").read_text())
    last = "systemd" if name == "systemd" else "logger, as kernel"
    assert [line["source"] for line in found["journal"]["lines"]] == [name, f"logger, as {name}", last]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node in a new boot, whose tools have nothing special to tell."""
    write(tmp_path, "/proc/sys/kernel/random/boot_id", f"{NOW[:8]}-{NOW[8:12]}-{NOW[12:16]}-{NOW[16:20]}-{NOW[20:]}\n")
    write(tmp_path, "/proc/uptime", "95.20 11.0\n")
    journal(tmp_path, entry(-1, "Started docker.", "systemd"), entry(0, "the last line"))
    stand_in(tmp_path, "systemctl", "echo 1min")
    return tmp_path


def journal(root: Path, *entries: str, kernel: str = "", code: int = 0) -> None:
    """Let journalctl print these entries of the boot before, and these lines of the kernel in this boot."""
    write(root, "/journal", "".join(f"{one}\n" for one in entries))
    stand_in(
        root, "journalctl", f'case "$*" in *--dmesg*) printf %s "{kernel}";; *) cat {root}/journal; exit {code};; esac'
    )


def run(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run the program as its unit does, on this folder."""
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), command, "--root", str(root)],
        env={"PATH": f"{root}/bin:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def collected(root: Path, boot: str = NOW) -> dict[str, Any]:
    """Collect, and return the evidence of this boot."""
    done = run(root, "collect")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads((root / f"{FOLDER}/boots/{boot}/evidence.json".lstrip("/")).read_text())
    return found


def marked(root: Path, state: str = "stopping", jobs: str = "12 reboot.target start waiting") -> None:
    stand_in(root, "systemctl", f'case "$*" in *is-system-running*) echo {state}; exit 1;; *) echo "{jobs}";; esac')
    done = run(root, "mark")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    stand_in(root, "systemctl", "echo 1min")


def next_boot(root: Path, boot: str, uptime: float = 0.01) -> None:
    write(root, "/proc/sys/kernel/random/boot_id", f"{boot}\n")
    write(root, "/proc/uptime", f"{uptime} 0.0\n")


def test_a_boot_after_a_shutdown_in_order(node: Path) -> None:
    next_boot(node, BEFORE)
    marked(node)
    next_boot(node, NOW)
    found = collected(node)
    assert list(found) == KEYS.split()
    assert (found["schema"], found["boot"], found["unread"]) == ("sparkrack.boot-evidence/1", NOW, {})
    assert found["before"] == BEFORE
    assert found["marker"]["boot"] == BEFORE
    assert found["marker"]["target"] == "reboot"
    assert not (node / f"{FOLDER}/clean-stop.json".lstrip("/")).exists(), "it would count for the next boot, too"
    assert found["journal"]["lines"][-1] == {"time": DIED, "source": "kernel", "text": "the last line"}
    assert (found["feeding"], found["shutdown_limit"]) == (60, 60)
    assert found["clean"] is True
    assert time.time() - 600 < found["began"] < time.time()


@pytest.mark.parametrize("state", ["running", "degraded", "maintenance"])
def test_a_unit_that_is_stopped_by_hand_is_not_a_shutdown(node: Path, state: str) -> None:
    marked(node, state)
    assert not (node / f"{FOLDER}/clean-stop.json".lstrip("/")).exists()


def test_a_mark_of_another_boot_does_not_count(node: Path) -> None:
    """The node was shut down, booted without this unit, and died in that boot."""
    next_boot(node, "c" * 32)
    marked(node)
    next_boot(node, NOW)
    assert collected(node)["marker"] is None


def test_a_damaged_mark_is_unread(node: Path) -> None:
    write(node, f"{FOLDER}/clean-stop.json", '{"boot": "x", "time": 1, "target": null}')
    found = collected(node)
    assert found["marker"] is None
    assert "has no boot ID" in found["unread"]["marker"]


def test_a_record_of_a_panic_counts_once(node: Path) -> None:
    record = write(node, "/var/lib/systemd/pstore/1795000000/000/dmesg.txt", PANIC)
    first = collected(node)
    assert [one["name"] for one in first["pstore"]] == ["1795000000/000/dmesg.txt"]
    assert first["pstore"][0]["sha256"] == hashlib.sha256(PANIC.encode()).hexdigest()
    assert "sysrq triggered crash" in first["pstore"][0]["text"]
    next_boot(node, "c" * 32)
    os.utime(record)
    assert collected(node, "c" * 32)["pstore"] == []


def test_an_old_record_does_not_come_back_when_the_evidence_that_named_it_is_gone(node: Path) -> None:
    write(node, "/var/lib/systemd/pstore/1795000000/000/dmesg.txt", PANIC)
    assert len(collected(node)["pstore"]) == 1
    next_boot(node, "c" * 32)
    assert collected(node, "c" * 32)["pstore"] == []
    shutil.rmtree(node / f"{FOLDER}/boots/{NOW}".lstrip("/"))
    next_boot(node, "d" * 32)
    assert collected(node, "d" * 32)["pstore"] == []


def test_a_record_belongs_to_the_boot_before_the_first_one_that_saw_it(node: Path) -> None:
    """A boot panics, and the next one dies after it began and before it collects: the record is not of that one."""
    next_boot(node, BEFORE)
    collected(node, BEFORE)
    next_boot(node, "c" * 32)
    write(node, "/var/lib/systemd/pstore/1795000000/000/dmesg.txt", PANIC)
    assert run(node, "begin").returncode == 0
    next_boot(node, NOW)
    found = collected(node)
    assert (found["before"], found["pstore"], found["earlier"]) == ("c" * 32, [], ["1795000000/000/dmesg.txt"])
    next_boot(node, "d" * 32)
    assert collected(node, "d" * 32)["earlier"] == [], "the evidence of one boot names it"


def test_a_boot_that_left_no_journal_is_the_one_that_ended(node: Path) -> None:
    """Its disk was full: the newest journal is that of an earlier boot, which was shut down in order."""
    next_boot(node, BEFORE)
    assert run(node, "begin").returncode == 0
    journal(node, entry(time.time() - DIED - 600, "Reached target reboot.target - System Reboot.", "systemd"))
    next_boot(node, "c" * 32)
    assert run(node, "begin").returncode == 0
    next_boot(node, NOW)
    found = collected(node)
    assert (found["before"], found["journal"], found["clean"]) == ("c" * 32, None, False)
    assert found["unread"]["journal"] == f"it ends with a boot that is older than boot {'c' * 32}, which ended last"


def test_a_boot_that_left_a_journal_and_did_not_write_that_it_began(node: Path) -> None:
    next_boot(node, "c" * 32)
    assert run(node, "begin").returncode == 0
    journal(node, entry(time.time() - DIED + 1, "x"))
    next_boot(node, NOW)
    assert collected(node)["before"] == BEFORE


def test_a_soft_reboot_leaves_no_mark(node: Path) -> None:
    marked(node, jobs="12 soft-reboot.target start waiting")
    assert not (node / f"{FOLDER}/clean-stop.json".lstrip("/")).exists()
    marked(node, jobs="12 unknown.target start waiting")
    assert (node / f"{FOLDER}/clean-stop.json".lstrip("/")).exists()
    assert run(node, "begin").returncode == 0
    assert not (node / f"{FOLDER}/clean-stop.json".lstrip("/")).exists(), "the boot that was marked goes on"


def make_unreadable(node: Path) -> None:
    """boots.json is a folder: which records are new is unknown."""
    path = node / f"{FOLDER}/boots.json".lstrip("/")
    path.unlink()
    path.mkdir()


CLEAN: Mapping[str, tuple[Callable[[Path], object], bool]] = {
    "nothing else": (lambda _node: None, True),
    "lines of systemd and the kernel while file systems are unmounted": (
        lambda node: journal(node, after_mark(80, "Unmounting /srv.", "systemd"), after_mark(81, "x", "audit")),
        True,
    ),
    "a program wrote later: the boot went on": (lambda node: journal(node, after_mark(80, "200 OK", "vllm")), False),
    "a reset by the watchdog": (lambda node: journal(node, after_mark(0, "x"), kernel="System reset by WDT."), False),
    "the watchdog's status": (lambda node: write(node, "/sys/class/watchdog/watchdog0/bootstatus", "32"), False),
    "a record of a panic": (lambda node: write(node, "/var/lib/systemd/pstore/1/dmesg.txt", PANIC), False),
    "more time than the firmware takes": (lambda node: moved_mark(node, -400), False),
    "a mark from after the begin of this boot": (lambda node: moved_mark(node, 60), False),
    "a record that cannot be read": (
        make_unreadable,
        False,
    ),
    "no time of this boot": (lambda node: (node / "proc/uptime").unlink(), False),
}


def after_mark(second: float, text: str, source: str = "kernel") -> str:
    """An entry of the journal of the boot before, so long after its mark, which is a second old."""
    return entry(time.time() - DIED + second, text, source)


def moved_mark(node: Path, seconds: float) -> None:
    path = node / f"{FOLDER}/clean-stop.json".lstrip("/")
    mark = json.loads(path.read_text())
    path.write_text(json.dumps({**mark, "time": mark["time"] + seconds}))


@pytest.mark.parametrize("name", CLEAN)
def test_a_marked_boot_is_clean_unless_something_says_otherwise(node: Path, name: str) -> None:
    change, clean = CLEAN[name]
    next_boot(node, BEFORE)
    assert run(node, "begin").returncode == 0
    marked(node)
    next_boot(node, NOW)
    journal(node, after_mark(0, "x"))
    change(node)
    assert collected(node)["clean"] is clean


def test_a_pause_that_is_longer_than_usual_shows_a_boot_that_left_no_trace(node: Path) -> None:
    """After some reboots it is known what this node takes. A boot that dies at once makes the pause twice as long."""

    def reboots(number: int, pause: float) -> dict[str, Any]:
        marked(node)
        moved_mark(node, 0.5 - pause)
        next_boot(node, f"{number:032x}")
        return collected(node, f"{number:032x}")

    journal(node, code=1)
    next_boot(node, "f" * 32)
    collected(node, "f" * 32)
    found = [reboots(number, pause) for number, pause in enumerate((60, 65, 62, 100, 250))]
    assert [one["clean"] for one in found] == [True, True, True, True, False]
    limits = [300, 300, 300, 1.5 * 62 + 30, 1.5 * 63.5 + 30]
    assert [one["pause_limit"] for one in found] == pytest.approx(limits, abs=3)
    log = json.loads((node / f"{FOLDER}/boots.json".lstrip("/")).read_text())
    pauses = [one["pause"] for one in log["boots"]]
    assert pauses == pytest.approx([0, 60, 65, 62, 100, 250], abs=2), "a firmware that takes longer now becomes usual"


@pytest.mark.parametrize(("target", "clean"), [("poweroff", True), ("reboot", False)])
def test_only_a_node_that_was_switched_off_may_stay_off(node: Path, target: str, clean: bool) -> None:
    next_boot(node, BEFORE)
    marked(node, jobs=f"1 {target}.target start waiting")
    moved_mark(node, -86400)
    next_boot(node, NOW)
    journal(node, entry(time.time() - DIED - 86500, "x"))
    assert collected(node)["clean"] is clean


@pytest.mark.parametrize("target", ["reboot", "soft-reboot"])
def test_the_last_words_of_systemd_are_a_shutdown(node: Path, target: str) -> None:
    words = f"Reached target {target}.target - System Reboot."
    next_boot(node, NOW)
    journal(node, entry(time.time() - DIED - 20, words, "systemd"))
    assert collected(node)["clean"] is (target == "reboot")


@pytest.mark.parametrize(
    "kernel", ["System reset by WDT.", "BERT: Error records from previous boot:", "{1}[Hardware Error]: of this boot"]
)
def test_lines_of_this_boot_about_the_one_before(node: Path, kernel: str) -> None:
    """What a program writes to /dev/kmsg is not asked for: only the facility of the kernel is."""
    journal(node, entry(0, "x"), kernel=kernel)
    stand = node / "bin/journalctl"
    stand.write_text(stand.read_text().replace("*--dmesg*)", "*--dmesg*--facility=kern*)"))
    found = collected(node)
    assert found["kernel"] == ([kernel] if "WDT" in kernel else [])
    assert found["hardware"] == ([kernel] if "BERT" in kernel else [])


@pytest.mark.parametrize("words", ["", "kernel", "systemd"])
def test_what_a_program_writes_to_the_kernels_log_is_not_of_the_kernel(node: Path, words: str) -> None:
    """As journald stores `echo '<12>...' > /dev/kmsg`: the transport of the kernel, the facility of the program."""
    found = json.loads(entry(0, "Kernel panic - not syncing: x")) | {"SYSLOG_FACILITY": "1"}
    del found["SYSLOG_IDENTIFIER"]
    journal(node, json.dumps(found | ({"SYSLOG_IDENTIFIER": words, "SYSLOG_PID": "1"} if words else {})))
    (line,) = collected(node)["journal"]["lines"]
    assert line["source"] == f"/dev/kmsg, as {words or 'kernel'}"


def compressed(text: str) -> bytes:
    """As the kernel compresses a record of pstore: deflate without a header."""
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(text.encode()) + deflate.flush()


def damaged(content: bytes) -> bytes:
    """The content with bytes after its middle that are not deflate."""
    for at in range(len(content) * 2 // 3, len(content)):
        found = content[:at] + b"\xff" * 99
        try:
            zlib.decompressobj(-zlib.MAX_WBITS).decompress(found)
        except zlib.error:
            return found
    raise AssertionError("any bytes are deflate")


def test_a_record_that_the_kernel_did_not_decompress(node: Path) -> None:
    """Whole, cut off, damaged at its end, and no record at all: what can be read of each counts."""
    text = "".join(
        f"<4>[  812.{number:03}] line {number} {hashlib.sha256(bytes([number])).hexdigest()}\n" for number in range(99)
    )
    whole = compressed(PANIC + text)
    for number, content in enumerate((whole, whole[: len(whole) // 2], damaged(whole), b"\xff" * 99, b"")):
        write(node, f"/var/lib/systemd/pstore/dmesg-efi_pstore-17{number}.enc.z", "")
        (node / f"var/lib/systemd/pstore/dmesg-efi_pstore-17{number}.enc.z").write_bytes(content)
    found = collected(node)
    texts = [record["text"] for record in found["pstore"]]
    assert texts[0] == PANIC + text
    assert all(text.startswith(PANIC) for text in texts[:3])
    assert len(texts[2]) > len(texts[1]) > len(PANIC)
    assert texts[3:] == ["", ""]
    path = "/var/lib/systemd/pstore/dmesg-efi_pstore-174.enc.z"
    assert found["unread"] == {"pstore": f"{path}: is compressed, and cannot be decompressed"}


def test_a_record_that_would_fill_the_disk_is_cut_off(node: Path) -> None:
    write(node, "/var/lib/systemd/pstore/dmesg-efi_pstore-1.enc.z", "")
    (node / "var/lib/systemd/pstore/dmesg-efi_pstore-1.enc.z").write_bytes(compressed("x" * (64 << 20)))
    (record,) = collected(node)["pstore"]
    assert len(record["text"]) == 64 << 10


def test_messages_of_any_form_are_kept(node: Path) -> None:
    messages: list[Any] = [[104, 105, 255], ["one", "two"], None, "a \u2028 b \x85 c"]
    lines = [json.dumps(json.loads(entry(0, "")) | {"MESSAGE": one}, ensure_ascii=False) for one in messages]
    odd = [
        json.dumps(json.loads(entry(0, "")) | more)
        for more in ({"MESSAGE": [300]}, {"__REALTIME_TIMESTAMP": "9" * 400})
    ]
    journal(node, *lines, *odd, entry(1, "after"))
    assert [line["text"] for line in collected(node)["journal"]["lines"]] == [
        "hi\ufffd",
        "one; two",
        "(journalctl leaves out a text of this length)",
        "a \u2028 b \x85 c",
        "after",
    ]


@pytest.mark.parametrize(
    "pstore", ["x", 5, {"name": "x"}, ["x", None, 5], [{}], [{"name": ["x"]}, {"name": {}}], [{"name": None}]]
)
def test_garbled_evidence_of_an_earlier_boot_stops_no_collection(node: Path, pstore: Any) -> None:
    earlier = {"boot": BEFORE, "made": 1.0, "pstore": pstore, "nvme": "x"}
    write(node, f"{FOLDER}/boots/{BEFORE}/evidence.json", json.dumps(earlier))
    write(node, "/var/lib/systemd/pstore/1/dmesg.txt", PANIC)
    assert [one["name"] for one in collected(node)["pstore"]] == ["1/dmesg.txt"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"made": 1e999, "pstore": []}', '{"made": NaN}', "\x00"])
def test_earlier_evidence_that_is_none_stops_no_collection(node: Path, text: str) -> None:
    write(node, f"{FOLDER}/boots/{BEFORE}/evidence.json", text)
    write(node, f"{FOLDER}/boots/{'e' * 32}/evidence.json", json.dumps({"made": 1.0, "pstore": []}))
    assert collected(node)["boot"] == NOW


def test_a_record_from_before_the_first_collection_does_not_count(node: Path) -> None:
    record = write(node, "/var/lib/systemd/pstore/1/dmesg.txt", PANIC)
    os.utime(record, (time.time() - 86400, time.time() - 86400))
    assert collected(node)["pstore"] == []


def test_what_the_hardware_tells(node: Path) -> None:
    write(node, "/sys/class/watchdog/watchdog0/identity", "SBSA Generic Watchdog\n")
    write(node, "/sys/class/watchdog/watchdog0/bootstatus", "32\n")
    write(node, "/sys/class/watchdog/watchdog0/timeout", "60\n")
    write(node, "/sys/firmware/acpi/tables/data/BERT", "\x00" * 20 + "\x20\x00\x00\x00")
    journal(node, entry(0, "x"), kernel="sbsa-gwdt sbsa-gwdt.0: System reset by WDT.\nother\n")
    write(node, "/sys/class/nvme/nvme0/model", "x")
    stand_in(node, "smartctl", f"echo '{NVME}'; exit 4")
    found = collected(node)
    assert found["watchdogs"] == [
        {"name": "watchdog0", "identity": "SBSA Generic Watchdog", "bootstatus": 32, "timeout": 60}
    ]
    assert found["kernel"] == ["sbsa-gwdt sbsa-gwdt.0: System reset by WDT."]
    assert found["bert"]["words"][5] == "0x20"
    assert (node / f"{FOLDER}/boots/{NOW}/bert.bin".lstrip("/")).read_bytes()[20] == 0x20
    assert found["nvme"] == {"nvme0": {"unsafe_shutdowns": 7, "power_cycles": 41}}
    assert found["unread"] == {}


def test_counters_of_the_boot_before(node: Path) -> None:
    write(node, "/sys/class/nvme/nvme0/model", "x")
    stand_in(node, "smartctl", f"echo '{NVME}'")
    next_boot(node, BEFORE)
    journal(node, entry(0, "x", boot="c" * 32))
    collected(node, BEFORE)
    next_boot(node, NOW)
    journal(node, entry(0, "x"))
    stand_in(node, "smartctl", f"echo '{NVME.replace('7', '8').replace('41', '42')}'")
    found = collected(node)
    assert found["nvme_before"] == {"nvme0": {"unsafe_shutdowns": 7, "power_cycles": 41}}
    assert found["nvme"] == {"nvme0": {"unsafe_shutdowns": 8, "power_cycles": 42}}


def test_counters_of_an_earlier_boot_are_no_growth(node: Path) -> None:
    """A boot between them collected nothing: what the disk counted since is of two ends."""
    write(node, "/sys/class/nvme/nvme0/model", "x")
    stand_in(node, "smartctl", f"echo '{NVME}'")
    next_boot(node, "d" * 32)
    journal(node, entry(0, "x", boot="c" * 32))
    collected(node, "d" * 32)
    next_boot(node, NOW)
    journal(node, entry(time.time() - DIED, "x"))
    found = collected(node)
    assert (found["before"], found["nvme_before"]) == (BEFORE, None)


def test_what_cannot_be_read_is_reported(node: Path) -> None:
    journal(node, "Data from the specified boot is not available", code=1)
    write(node, "/sys/class/nvme/nvme0/model", "x")
    stand_in(node, "smartctl", "echo nothing")
    (node / "proc/uptime").unlink()
    found = collected(node)
    assert (found["journal"], found["before"], found["nvme"], found["began"]) == (None, None, None, None)
    assert found["unread"] == {
        "began": "/proc/uptime: No such file or directory",
        "journal": "journalctl: exit 1",
        "nvme": "/dev/nvme0: no counters in the answer",
    }


def test_lines_that_matter_are_kept_from_far_before(node: Path) -> None:
    early = entry(-900, "NVRM: nvAssertOkFailedNoLog: NV_ERR_NO_MEMORY @ _memdescAllocInternal")
    many = [entry(index - 700, f"line {index}", "app") for index in range(600)]
    journal(node, entry(-901, "quite usual"), early, *many)
    lines = [line["text"] for line in collected(node)["journal"]["lines"]]
    assert "NV_ERR_NO_MEMORY" in lines[0]
    assert len(lines) == 201
    assert lines[-1] == "line 599"


def test_the_last_twenty_are_kept_and_the_first_stays_as_it_is(node: Path) -> None:
    for number in range(25):
        boot = f"{number:032x}"
        next_boot(node, boot)
        collected(node, boot)
        folder = node / f"{FOLDER}/boots/{boot}".lstrip("/")
        os.utime(folder, (number, number))
    boots = sorted(path.name for path in (node / f"{FOLDER}/boots".lstrip("/")).iterdir())
    assert boots == [f"{number:032x}" for number in range(5, 25)]
    path = node / f"{FOLDER}/boots/{24:032x}/evidence.json".lstrip("/")
    before = path.read_bytes()
    journal(node, entry(5, "something else"))
    assert run(node, "collect").returncode == 0
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o077 == 0


def test_a_disk_that_is_full_is_an_error_of_one_line(node: Path) -> None:
    (node / "var/lib").mkdir(parents=True)
    write(node, "/var/lib/sparkrack", "in the way")
    done = run(node, "collect")
    assert done.returncode == 1
    assert done.stderr.startswith("boot_evidence: ")
    assert len(done.stderr.splitlines()) == 1

"""What hosts answer about an end, parsed: forms as they are written, and everything else."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from roles.blackbox import journal_stream
from sparkrack.autopsy import parse, questions
from sparkrack.autopsy.evidence import LogLine, Sample
from sparkrack.autopsy.parse import EvidenceError
from tests.unit.autopsy.nodes import BOOT, entry, evidence, sample

NOW = datetime(2026, 11, 25, 1, 0, 10)
CLOCK = {"date": "2026-11-25", "time": "01:00:10", "gmt-offset": "+01:00"}
LEGS = {"qsfp56-dd-1-1": "qsfp56-dd-1-1"}
ASKED = 1_795_000_000.0
MARKERS: tuple[Any, ...] = (7, [], {}, {"time": "x", "target": None})
WRITER = "/usr/lib/systemd/systemd-journal-remote"


def test_a_sample_as_the_recorder_prints_it() -> None:
    (found,) = parse.samples(f"{sample(ASKED)}\nnot JSON\n[]\n{{}}\n")
    assert found == Sample(
        time=ASKED,
        boot=BOOT,
        available=28 / 128,
        full=0.0,
        no_memory=0,
        clock=2190.0,
        utilization=0.96,
        margin=6.0,
        power=92.0,
    )


@pytest.mark.parametrize("part", ["memory", "pressure", "gpu", "events"])
def test_a_part_that_could_not_be_read_is_unknown(part: str) -> None:
    (found,) = parse.samples(json.dumps(json.loads(sample(ASKED)) | {part: None}))
    unknown: dict[str, list[object]] = {
        "memory": [found.available],
        "pressure": [found.full],
        "gpu": [found.clock, found.margin],
        "events": [found.no_memory],
    }
    assert unknown[part] == [None] * len(unknown[part])


@pytest.mark.parametrize(
    ("line", "at", "text"),
    [
        ("1795000000.250 6,1234,567890,-;Kernel panic - not syncing: x", ASKED + 0.25, "Kernel panic - not syncing: x"),
        ("2026-11-18T01:06:40+00:00 <0>Kernel panic", 1_794_964_000.0, "<0>Kernel panic"),
        ("2026-11-18T01:06:40Z plain", 1_794_964_000.0, "plain"),
        ("no stamp at all", None, "no stamp at all"),
        ("99999-11-18T01 text", None, "99999-11-18T01 text"),
    ],
)
def test_lines_of_netconsole(line: str, at: float | None, text: str) -> None:
    assert parse.netconsole(f"{line}\n\n") == (LogLine(at, "netconsole", "kernel", text),)


@pytest.mark.parametrize(("priority", "program"), [(0, "kernel"), (7, "kernel"), (12, "/dev/kmsg, as kernel")])
def test_what_a_program_wrote_is_sent_by_netconsole_with_its_facility(priority: int, program: str) -> None:
    (found,) = parse.netconsole(f"{ASKED} {priority},700,99,-;Kernel panic - not syncing: x\n")
    assert (found.program, found.text) == (program, "Kernel panic - not syncing: x")


@pytest.mark.parametrize(
    ("after", "frames"),
    [
        ({"rx-packet": "110", "rx-pause": "5"}, 10),
        ({"rx-packet": "100", "rx-pause": "5"}, 0),
        ({"rx-packet": "130", "rx-pause": "35"}, 0),
        ({"rx-packet": "7", "rx-pause": "0"}, None),
        ({"rx-packet": "many", "rx-pause": "5"}, None),
        ({"rx-packet": "110"}, None),
        (None, None),
    ],
)
def test_frames_of_a_leg_between_two_readings(after: dict[str, str] | None, frames: int | None) -> None:
    """Pause frames alone are what a card sends whose node stands still."""
    before = [{"default-name": "leg", "rx-packet": "100", "rx-pause": "5"}]
    assert parse.leg_frames(before, [{"default-name": "leg", **after}] if after else [], "leg") == frames


def test_a_journal_by_boots() -> None:
    bytes_entry = json.loads(entry(ASKED, "x")) | {"MESSAGE": [104, 105, 255]}
    text = "\n".join([entry(ASKED + 1, "later"), json.dumps(bytes_entry), "{}", entry(ASKED, "y", boot="c" * 32)])
    found = parse.journal(text, "remote journal")
    assert [line.text for line in found[BOOT]] == ["hi\ufffd", "later"]
    assert [line.text for line in found["c" * 32]] == ["y"]


def test_a_message_that_is_there_twice_is_one_line() -> None:
    """journalctl prints a field that an entry has twice as a list of texts, and bytes as a list of numbers."""
    twice = [json.loads(entry(ASKED, "x")) | {"MESSAGE": message} for message in (["one", "two"], [300], {"a": 1})]
    found = parse.journal("\n".join(map(json.dumps, twice)), "journal")
    assert [line.text for line in found[BOOT]] == ["one; two", "{'a': 1}"]


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e300, -1.0, 1e12])
def test_a_time_that_no_clock_has_is_unknown(at: float) -> None:
    assert parse.samples(sample(at)) == ()
    stamp = json.loads(entry(ASKED, "x")) | {"__REALTIME_TIMESTAMP": "9" * 30}
    assert parse.journal(json.dumps(stamp), "journal") == {BOOT: (LogLine(None, "journal", "kernel", "x"),)}
    assert parse.netconsole(f"{'9' * 30} text\n") == (LogLine(None, "netconsole", "kernel", f"{'9' * 30} text"),)
    line = {"time": at, "source": "x", "text": "x"}
    assert parse.evidence_lines(evidence(journal={"lines": [line]})) == (LogLine(None, "journal", "x", "x"),)


@pytest.mark.parametrize(
    ("trusted", "program"),
    [
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"}, "kernel"),
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1"}, "/dev/kmsg, as kernel"),
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": None}, "/dev/kmsg, as kernel"),
        ({"_TRANSPORT": "syslog", "_PID": "7", "_COMM": "logger"}, "logger, as kernel"),
        ({"_TRANSPORT": "syslog"}, "?, as kernel"),
    ],
)
def test_a_program_that_calls_itself_the_kernel_is_not_the_kernel(trusted: dict[str, str], program: str) -> None:
    forged = json.loads(entry(ASKED, "Kernel panic - not syncing: x"))
    del forged["_TRANSPORT"], forged["SYSLOG_FACILITY"]
    assert parse.journal(json.dumps(forged | trusted), "journal")[BOOT][0].program == program


@pytest.mark.parametrize(
    ("trusted", "program"),
    [
        ({"_TRANSPORT": "journal", "_PID": "1", "_COMM": "systemd"}, "systemd"),
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "3"}, "/dev/kmsg, as systemd"),
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "3", "_PID": "1"}, "/dev/kmsg, as systemd"),
        ({"_TRANSPORT": "syslog", "_PID": "12", "_COMM": "logger"}, "logger, as systemd"),
    ],
)
def test_a_program_that_calls_itself_systemd_is_not_systemd(trusted: dict[str, str], program: str) -> None:
    """Early in a boot, and at its end, systemd itself writes to the kernel's log, as any program of root can."""
    forged = {key: value for key, value in json.loads(entry(ASKED, "x", "systemd")).items() if not key.startswith("_P")}
    assert parse.journal(json.dumps(forged | trusted), "journal")[BOOT][0].program == program


def test_the_log_of_the_switch() -> None:
    rows = [
        {"time": "2026-11-25 00:59:59", "message": "qsfp56-dd-1-1 link down"},
        {"time": "01:00:05", "message": "qsfp56-dd-1-1 link up (speed 100G, full duplex)"},
        {"time": "01:00:06", "message": "qsfp56-dd-1-3 link down"},
        {"time": "some day", "message": "qsfp56-dd-1-1 link down"},
        {"time": "01:00:07", "message": "user admin logged in"},
    ]
    interfaces = [
        {"name": "qsfp56-dd-1-1", "default-name": "qsfp56-dd-1-1", "last-link-down-time": "2026-11-25 00:59:59"}
    ]
    found = parse.link_changes(interfaces, rows, LEGS, NOW, ASKED)
    assert [(one.time - ASKED, one.up, one.logged) for one in found] == [(-11, False, True), (-5, True, True)]


def test_without_the_log_the_last_change_is_known() -> None:
    interfaces = [{"name": "to-spark1", "default-name": "qsfp56-dd-1-1", "last-link-down-time": "2026-11-25 00:59:00"}]
    (found,) = parse.link_changes(interfaces, (), LEGS, NOW, ASKED)
    assert (found.leg, found.time - ASKED, found.up, found.logged) == ("qsfp56-dd-1-1", -70, False, False)
    odd = [{**interfaces[0], "last-link-down-time": "nov/25/2026 00:59:00"}]
    assert parse.link_changes(odd, (), LEGS, NOW, ASKED) == ()


def test_the_clock_of_the_switch() -> None:
    assert parse.switch_now([CLOCK]) == NOW
    wanted = datetime.fromisoformat("2026-11-25T01:00:10+01:00").timestamp()
    assert parse.switch_skew([CLOCK], wanted - 5) == 5
    assert parse.switch_skew([{**CLOCK, "gmt-offset": "east"}], wanted) is None
    with pytest.raises(EvidenceError, match="not a date and time"):
        parse.switch_now([])


def test_the_evidence_of_a_boot() -> None:
    lines = [{"time": ASKED, "source": "kernel", "text": "x"}]
    found = parse.boot_evidence(json.dumps(evidence(journal={"first": 1.0, "last": 2.0, "lines": lines})))
    assert parse.evidence_lines(found) == (LogLine(ASKED, "journal", "kernel", "x"),)
    assert parse.evidence_lines(evidence()) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "{}", json.dumps(evidence(schema="sparkrack.boot-evidence/9"))),
        json.dumps(evidence(boot="../../etc")),
        json.dumps({key: value for key, value in evidence().items() if key != "marker"}),
        *(json.dumps(evidence(marker=marker)) for marker in MARKERS),
        *(json.dumps(evidence(before=before)) for before in (7, "", "x; reboot", [BOOT])),
        *(json.dumps(evidence(pstore=pstore)) for pstore in (7, "x", [7], [None])),
        *(json.dumps(evidence(unread=unread)) for unread in (7, "x", ["x"])),
    ],
)
def test_evidence_of_another_form_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(EvidenceError) as raised:
        parse.boot_evidence(text)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("now", "before", "grown"),
    [
        ({"nvme0": (8, 42)}, {"nvme0": (7, 41)}, 1),
        ({"nvme0": (7, 41)}, {"nvme0": (7, 41)}, 0),
        ({"nvme0": (7, 41), "nvme1": (3, 9)}, {"nvme0": (7, 41), "nvme1": (2, 8)}, 1),
        ({"nvme0": (7, 41)}, {"nvme1": (7, 41)}, None),
        ({"nvme0": (1, 1)}, {"nvme0": (7, 41)}, None),
        (None, {"nvme0": (7, 41)}, None),
        ({"nvme0": (7, 41)}, None, None),
    ],
)
def test_the_growth_of_the_counters(now: Any, before: Any, grown: int | None) -> None:
    def counters(one: Any) -> Any:
        return one and {name: {"unsafe_shutdowns": a, "power_cycles": b} for name, (a, b) in one.items()}

    assert parse.power_ons(evidence(nvme=counters(now), nvme_before=counters(before))) == grown


@pytest.mark.parametrize(("status", "reported"), [(32, True), (33, True), (1, False), (0, False), (None, False)])
def test_what_the_watchdog_reports(status: int | None, reported: bool) -> None:
    dog = {"name": "watchdog0", "identity": "SBSA Generic Watchdog", "bootstatus": status, "timeout": 60}
    assert bool(parse.firmware(evidence(watchdogs=[dog]))) == reported
    assert parse.firmware(evidence(kernel=["System reset by WDT."])) == ("System reset by WDT.",)


@pytest.mark.skipif(not Path(WRITER).exists(), reason="systemd-journal-remote is not installed")
def test_only_the_file_of_the_node_is_read(tmp_path: Path) -> None:
    """The real journalctl. The receiver gives each node a file; what stands in an entry is the word of its sender."""

    def receive(file: str, message: str, host: str, boot: str = BOOT) -> None:
        fields = {
            "__REALTIME_TIMESTAMP": 1_795_000_000_000_000,
            "__MONOTONIC_TIMESTAMP": 1,
            "_BOOT_ID": boot,
            "_MACHINE_ID": "d" * 32,
            "_HOSTNAME": host,
            "MESSAGE": message,
        }
        text = "".join(f"{name}={value}\n" for name, value in fields.items()) + "\n"
        command = [WRITER, f"--output={tmp_path}/{file}", "--split-mode=none", "-"]
        subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=60)

    def read(node: str, boot: str | None = None) -> tuple[int, list[str]]:
        question = questions.of_receiver(node, boot)[questions.REMOTE].replace(journal_stream.RECEIVED, str(tmp_path))
        done = subprocess.run(["sh", "-c", question], capture_output=True, text=True, timeout=60, check=False)
        found = parse.journal(done.stdout, "remote journal")
        return done.returncode, sorted(line.text for lines in found.values() for line in lines)

    receive("remote-spark1.journal", "now", "spark1.local")
    receive("remote-spark1@1-2-3.journal", "before", "spark1.local", boot="c" * 32)
    receive("remote-spark1.example.org.journal", "of another node", "spark1")
    receive("remote-spark2.journal", "Reached target reboot.target", "spark1")
    assert read("spark1") == (0, ["before", "now"])
    assert read("spark1", BOOT) == (0, ["now"])
    assert read("spark3") == (questions.ABSENT, [])


@pytest.mark.parametrize(("time", "boot"), [(1e400, BOOT), (-1, BOOT), ("x", BOOT), (None, BOOT), ([], BOOT)])
def test_a_sample_without_a_time_is_left_out(time: object, boot: str) -> None:
    lines = [
        json.dumps({"time": time, "boot": boot}),
        json.dumps({"time": ASKED}),
        json.dumps({"time": 0, "boot": boot}),
    ]
    assert [one.time for one in parse.samples("\n".join(lines))] == [0.0]


@pytest.mark.parametrize(("length", "text"), [(0, "x"), (1, "x... (1 characters left out)")])
def test_a_long_line_is_shortened(monkeypatch: pytest.MonkeyPatch, length: int, text: str) -> None:
    monkeypatch.setattr(parse, "LINE_CHARACTERS", 1)
    assert parse._shorten_line("x" * (1 + length)) == text


def test_a_hang_of_a_unit_is_one_line() -> None:
    whole = {
        "time": ASKED,
        "unit": "qwen",
        "boot": "a-b",
        "processes": [1, 2],
        "nccl": [{"build_id": "x"}, {"build_id": "x"}, {"build_id": "y"}],
        "summary": "rank 1 waits",
        "ras": "answer",
    }
    wrong: list[dict[str, object]] = [
        {},
        {"time": []},
        {"nccl": 7},
        {"processes": None},
        {"nccl": [{}]},
        {"time": -1e300},
    ]
    found = parse.hangs("\n".join(json.dumps(whole | each) for each in wrong))
    assert [(one.unit, one.time, one.boot, one.text) for one in found] == [
        ("qwen", ASKED, "ab", "rank 1 waits; 2 processes; NCCL build x, y; an answer of NCCL's RAS")
    ]
    (plain,) = parse.hangs(json.dumps(whole | {"nccl": [], "ras": None, "summary": ""}))
    assert plain.text == "2 processes"


@pytest.mark.parametrize("stamp", ["9" * 400, "1.2.3", "2026-13-01T00:00:00", "0001-01-01T00:00:00+14:00"])
def test_a_stamp_that_is_not_a_time_is_unknown(stamp: str) -> None:
    assert parse._parse_stamp(stamp) is None


@pytest.mark.parametrize(
    ("row", "seconds"),
    [({"uptime": "1m1s"}, 61.0), ({"uptime": "500ms"}, 0.5), ({"uptime": "x"}, None), ({}, None)],
)
def test_how_long_the_switch_runs(row: dict[str, str], seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(EvidenceError, match=r"^uptime of the switch: "):
            parse.switch_booted([row])
    else:
        assert parse.switch_booted([row]) == seconds


@pytest.mark.parametrize(
    ("value", "found"), [(9e299, 9e299), (1e300, None), (-1e300, None), (True, None), ("1", None), (0, 0.0)]
)
def test_a_figure_is_a_number_that_a_machine_can_have(value: object, found: float | None) -> None:
    assert parse._finite_number(value) == found


@pytest.mark.parametrize(
    ("frames", "pauses", "counted"), [(5, 2, 5), (5, 5, 0), (0, 0, 0), (-1, 0, None), (5, -1, None), (0, 3, 0)]
)
def test_pause_frames_are_no_sign_of_life(frames: int, pauses: int, counted: int | None) -> None:
    before, after = (
        [{"default-name": "x"}, {"default-name": "leg", "rx-packet": str(100 + one), "rx-pause": str(100 + other)}]
        for one, other in ((0, 0), (frames, pauses))
    )
    assert parse.leg_frames(before, after, "leg") == counted
    assert parse.leg_frames(before, after, "another") is None

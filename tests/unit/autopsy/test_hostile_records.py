"""Records that are damaged, hostile, or of a node whose clock was not set: no traceback, nothing that moves the
cursor, and no verdict about another boot.
"""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sparkrack.autopsy import parse
from tests.unit.autopsy.nodes import BOOT, NEXT, entry, evidence, sample
from tests.unit.autopsy.test_autopsy import PANIC, Rack, states

AT = 1_795_000_000.0
SINCE_1970 = 40.0
"""Seconds since 1970 that a clock shows which was not set."""
HOSTILE = "\x1b[2J\x1b]0;title\x07 nul \x00 bell \x07 \u202e separator \u2028 next \x85 \ud800 end"


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    (tmp_path / "nodes").mkdir()
    return Rack(tmp_path, monkeypatch)


def message(value: Any, **more: Any) -> str:
    """One line of `journalctl --output=json` with this MESSAGE; not ASCII, as journalctl prints it."""
    return json.dumps(json.loads(entry(AT, "")) | {"MESSAGE": value} | more, ensure_ascii=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([104, 105, 255, 0, 27], "hi\ufffd\x00\x1b"),
        (["one", "two"], "one; two"),
        (["one", [104, 105]], "one; hi"),
        (None, "(journalctl leaves out a text of this length)"),
        ("a \u2028 b \x85 c", "a \u2028 b \x85 c"),
        ("x" * 3000, f"{'x' * 2000}... (1000 characters left out)"),
        ("", ""),
    ],
)
def test_a_message_of_any_form_is_kept(value: Any, text: str) -> None:
    found = parse.journal(f"{message(value)}\n{entry(AT + 1, 'after')}", "journal")
    assert [line.text for line in found[BOOT]] == [text, "after"]


@pytest.mark.parametrize(
    "line",
    [
        message([300]),
        message([-1, "x", {}], __REALTIME_TIMESTAMP="x"),
        message("x", __REALTIME_TIMESTAMP="9" * 400),
        message("x", __REALTIME_TIMESTAMP=None),
        message("x", __REALTIME_TIMESTAMP=[1, 2]),
        "[" * 100_000,
        '{"MESSAGE": "cut of',
        "\x00" * 100,
        "1" * 5000,
    ],
    ids=["no byte", "no time", "long time", "null time", "times", "deep", "cut off", "NUL", "digits"],
)
def test_a_line_of_another_form_costs_no_other_line(line: str) -> None:
    text = f"{entry(AT, 'before')}\n{line}\n{entry(AT + 1, 'after')}\n"
    assert [one.text for one in parse.journal(text, "journal")[BOOT]] == ["before", "after"]
    assert [one.time for one in parse.samples(f"{sample(AT)}\n{line}\n{sample(AT + 1)}\n")] == [AT, AT + 1]


@pytest.mark.parametrize("at", ["NaN", "Infinity", "-Infinity", "1e300", "-5", "9" * 400, '"x"', "null", "[]"])
def test_a_time_that_is_none(at: str) -> None:
    assert parse.samples(sample(AT).replace(f'"time": {AT}', f'"time": {at}')) == ()
    assert parse.netconsole(f"{at} text")[0].time is None
    found = json.loads('{"lines": [{"time": AT, "source": "kernel", "text": "x"}]}'.replace("AT", at))
    try:
        times = [line.time for line in parse.evidence_lines(evidence(journal=found))]
    except parse.EvidenceError:
        times = [None]
    assert times == [None]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "9" * 400])
def test_a_figure_that_is_none_is_unknown(value: str) -> None:
    text = re.sub(r'"(available|full|clock|margin|nvrm_no_memory)": [0-9.]+', rf'"\1": {value}', sample(AT))
    (found,) = parse.samples(text)
    assert (found.available, found.full, found.clock, found.margin, found.no_memory) == (None,) * 5


@pytest.mark.parametrize("alive", [True, False])
def test_a_hostile_line_reaches_no_terminal(rack: Rack, alive: bool) -> None:
    """In each record of a node that is alive, and in what another node received of one that is dead."""
    now = time.time()
    long = f"{HOSTILE}{'x' * (1 << 20)}"
    lines = [{"time": now - 200, "source": HOSTILE, "text": long}]
    if alive:
        panic = f"Kernel panic - not syncing: {HOSTILE}\n"
        rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines}, pstore=[{"text": panic}])
    else:
        rack.nodes.die("spark1")
    console = rack.nodes.write("spark2", "netconsole/spark1.log", "")
    noise = b"\xff\xfe\x00\x1b[2J " + b"y" * (1 << 20)
    console.write_bytes(f"{now - 190:.3f} ".encode() + noise + f"\n{now - 189:.3f} 0,1,2,-;{PANIC}\n".encode())
    remote = [message(long, __REALTIME_TIMESTAMP=str(int((now - 191) * 1e6)), SYSLOG_IDENTIFIER=HOSTILE)]
    rack.nodes.write(
        "spark2",
        "remote/remote-spark1.journal",
        "\n".join([*remote, message([1, "x"])]).encode(errors="replace").decode(),
    )
    done = rack.run()
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert not [sign for sign in done.output if not sign.isprintable() and sign != "\n"]
    assert len(done.output) < 40_000
    found = rack.report()
    assert found["verdict"] == "panic"
    texts = [one["text"] for one in found["timeline"]]
    assert any("bell \x07" in text for text in texts), "JSON has the text as it is, escaped by its own rules"


def test_an_archive_of_records_that_are_no_text(rack: Rack) -> None:
    rack.nodes.evidence("spark1", pstore=[{"text": PANIC}])
    rack.nodes.write("spark2", "netconsole/spark1.log", "").write_bytes(b"\xff\x00\xfe\n")
    assert rack.run("--collect", str(rack.folder / "out")).exit_code == 2


PARTS: list[tuple[str, Any]] = [
    ("before", 5),
    ("marker", {"boot": BOOT}),
    ("marker", {"boot": BOOT, "time": "noon", "target": "reboot"}),
    ("marker", "x"),
    ("journal", []),
    ("journal", {"lines": [1]}),
    ("pstore", ["x"]),
    ("pstore", 5),
    ("watchdogs", [5]),
    ("kernel", 5),
    ("nvme", [1]),
    ("unread", ["x"]),
]


@pytest.mark.parametrize(("part", "value"), PARTS, ids=[f"{part}-{number}" for number, (part, _) in enumerate(PARTS)])
def test_evidence_with_a_part_of_another_form(rack: Rack, part: str, value: Any) -> None:
    both = {"nvme": value, "nvme_before": value} if part == "nvme" else {part: value}
    rack.nodes.evidence("spark1", **both)
    found = rack.report()
    assert found["verdict"] == "unknown"
    names = [one["name"] for one in found["sources"]]
    assert names.count("boot evidence") == 1


@pytest.mark.parametrize("end", [0.1, 0.5, 0.99])
def test_evidence_that_is_cut_off(rack: Rack, end: float) -> None:
    text = json.dumps(evidence(pstore=[{"text": PANIC}]))
    rack.nodes.write("spark1", f"boots/{NEXT}/evidence.json", text[: int(len(text) * end)])
    found = rack.report()
    assert (found["verdict"], states(found)["boot evidence"]) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("<6>[ 811.9] Modules linked in:\n<0>[ 812.1] ---[ end Kernel panic - not syncing: hung ]---\n", "panic"),
        ("<0>[ 812.1] Kernel panic - not syn", "unknown"),
        ("\x00" * 4096, "unknown"),
        ("", "unknown"),
    ],
    ids=["the end is left", "cut off", "NUL", "empty"],
)
def test_a_record_of_pstore_that_is_cut_off(rack: Rack, text: str, verdict: str) -> None:
    rack.nodes.evidence("spark1", pstore=[{"text": text}])
    found = rack.report()
    assert found["verdict"] == verdict
    if verdict == "panic":
        assert found["reason"] == "the kernel panicked: hung"


def test_a_boot_whose_clock_was_not_set_is_not_judged_by_the_times_of_others(rack: Rack) -> None:
    """Its evidence says that it began in 1970. A panic that netconsole recorded a day ago is of another boot."""
    now = time.time()
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 86400:.3f} {PANIC}\n")
    rack.nodes.write("spark1", f"boots/{BOOT}/evidence.json", f'{{\n "began": {SINCE_1970}\n}}\n')
    lines = [{"time": SINCE_1970 + 5, "source": "kernel", "text": "the last line"}]
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    found = rack.report()
    assert (found["verdict"], found["last_sign"]) == ("unknown", None)
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 190:.3f} {PANIC}\n")
    assert rack.report()["verdict"] == "panic"


def test_a_shutdown_by_a_clock_that_was_not_set_is_planned(rack: Rack) -> None:
    rack.nodes.evidence("spark1", marker={"boot": BOOT, "time": SINCE_1970, "target": "reboot"})
    found = rack.report()
    assert (found["verdict"], found["last_sign"]) == ("planned", None)


def test_a_clock_that_is_not_set_now_moves_no_earlier_boot(rack: Rack) -> None:
    date = rack.nodes.folder / "bin/date"
    date.write_text(f'#!/bin/sh\ncase $NODE in */spark1) echo {SINCE_1970};; *) exec /usr/bin/date "$@";; esac\n')
    date.chmod(0o755)
    at = time.time() - 200
    lines = [{"time": at, "source": "kernel", "text": "the last line"}]
    rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    found = rack.report()
    (line,) = [one for one in found["timeline"] if one["text"] == "kernel: the last line"]
    assert abs(datetime.fromisoformat(line["at"]).timestamp() - at) < 2
    (node,) = [one for one in found["sources"] if one["name"] == "node"]
    assert node["detail"] == "answers; the times of its earlier boots are taken as right"


@pytest.mark.parametrize("witness", ["samples", "journal"])
def test_a_dead_node_whose_clock_was_not_set_is_not_judged_by_an_older_boot(rack: Rack, witness: str) -> None:
    """The older boot ended by a panic, and its clock was right; nothing shows which of both ended last."""
    now, older = time.time(), "e" * 32
    rack.nodes.die("spark1")
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 3000:.3f} {PANIC}\n")
    boots = ((now - 3001, older), (SINCE_1970, BOOT), (SINCE_1970 + 1, BOOT))
    if witness == "samples":
        rack.nodes.write("spark2", "peers/spark1.ring", "".join(f"{sample(at, boot)}\n" for at, boot in boots))
    else:
        rack.nodes.write(
            "spark2", "remote/remote-spark1.journal", "".join(f"{entry(at, 'x', 'vllm', boot)}\n" for at, boot in boots)
        )
    found = rack.report()
    assert (found["verdict"], found["boot"]) == ("unknown", None), found
    (order,) = [one for one in found["sources"] if one["name"] == "order of the boots"]
    assert order["detail"] == (f"the clock of the node was not set in boot {BOOT}, so which boot ended last is unknown")


def test_a_boot_whose_clock_is_set_after_its_begin_is_judged_by_its_end(rack: Rack) -> None:
    now = time.time()
    rack.nodes.die("spark1")
    text = "".join(f"{sample(at)}\n" for at in (SINCE_1970, SINCE_1970 + 1, now - 102, now - 100))
    os.utime(rack.nodes.write("spark2", "peers/spark1.ring", text), (now - 100, now - 100))
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{now - 99:.3f} {PANIC}\n")
    found = rack.report()
    assert (found["verdict"], found["boot"]) == ("panic", BOOT), found
    assert min(one["at"] for one in found["timeline"]) > "2025"


@pytest.mark.parametrize("alive", [True, False])
def test_two_boots_in_one_minute(rack: Rack, alive: bool) -> None:
    """A panic 20 s after the begin of the first, and no record of the second, which began 12 s later."""
    now, first = time.time(), "e" * 32
    minute = now - 200
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{minute + 20:.3f} {PANIC}\n")
    text = "".join(
        f"{sample(at, boot)}\n"
        for at, boot in ((minute, first), (minute + 20, first), (minute + 32, BOOT), (minute + 50, BOOT))
    )
    os.utime(rack.nodes.write("spark2", "peers/spark1.ring", text), (minute + 50, minute + 50))
    if alive:
        rack.nodes.write("spark1", f"boots/{BOOT}/evidence.json", f'{{\n "began": {minute + 31}\n}}\n')
        lines = [{"time": minute + 50, "source": "kernel", "text": "the last line"}]
        rack.nodes.evidence("spark1", journal={"first": 1, "last": 2, "lines": lines})
    else:
        rack.nodes.die("spark1")
    found = rack.report()
    assert (found["verdict"], found["boot"]) == ("unknown", BOOT), found
    rack.nodes.write("spark2", "netconsole/spark1.log", f"{minute + 50:.3f} {PANIC}\n")
    assert rack.report()["verdict"] == "panic"

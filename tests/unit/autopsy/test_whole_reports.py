"""Whole reports, each limit of the verdict, and each question of an autopsy as text; UPDATE_DOCS=1 renews them."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from core.model import Rack
from sparkrack.autopsy import questions
from sparkrack.autopsy.evidence import Evidence, EvidenceSource, LegNow, SourceState
from sparkrack.autopsy.render import lines
from sparkrack.autopsy.report import report_of
from sparkrack.autopsy.verdict import Cause
from tests import generated
from tests.unit.autopsy.ends import (
    COLD,
    END,
    FROZEN,
    LEG,
    MARK,
    NVRM,
    PANIC,
    SHUTDOWN,
    WARM,
    back,
    dead,
    down,
    line,
    samples,
    up,
)
from tests.unit.autopsy.test_verdict import LIFE, LOCKUP, OOPS, SILENT, STALL, WEDGED, XID
from tests.unit.model import serving_racks

CASES = "tests/cases/autopsy/ends.md"
TEXTS = "tests/cases/autopsy/questions.md"
SOURCES = (
    EvidenceSource("boot evidence", SourceState.READ, "2 lines", 1.25),
    EvidenceSource("netconsole at spark1", SourceState.ABSENT, "no line was received"),
    EvidenceSource("switch crs812", SourceState.UNKNOWN, "it does not\nanswer", -0.04),
)
WHOLE: dict[str, Evidence] = {
    "a whole report of a node that is off": replace(
        dead(
            samples=(*samples(-0.5, seconds=30), *samples(seconds=0, clock=None, power=None, no_memory=None)),
            lines=(line(-9, XID), line(-8, LOCKUP, "", "netconsole"), line(-3, PANIC, source="netconsole")),
            changes=(up(-20), down(1, logged=False)),
            other_downs={"spark1": END + 2},
            sources=SOURCES,
            life=LIFE,
            clocks_unknown=("spark2",),
        ),
        node="n1",
    ),
    "a whole report of a node that is back": replace(
        back(
            90,
            clean_stop=MARK,
            samples=samples(seconds=12, utilization=None, margin=None, available=None, full=None),
            lines=(line(-50, STALL), line(-40, NVRM), line(-1, FROZEN, "systemd"), line(5, "x", "vllm")),
            records=(OOPS,),
            earlier_records=("dmesg-1",),
            hardware=("memory",),
            changes=(down(2), up(70)),
            sources=SOURCES[:1],
        ),
        node="n0",
    ),
    "a whole report with more entries than the screen shows": replace(
        back(lines=tuple(line(second / 10, f"line {second}") for second in range(-900, 1))), node="n9"
    ),
    "a whole report of which nothing is known": replace(dead(), node="n0", ended=None, legs=()),
    "a whole report of a node that stands still": replace(
        dead(1800, samples=WEDGED[-3:], silent=SILENT),
        node="n0",
        legs=(LegNow(LEG, True), LegNow("other", None)),
    ),
}

FIRMWARE = ("System reset by WDT.",)
SHUT_DOWN = line(0, SHUTDOWN, "systemd")
NO_MEMORY = samples(available=0.01)
PRESSED = samples(full=34.0, no_memory=1)
LIMITS: dict[str, tuple[Evidence, ...]] = {
    "a sample 14.9 and 15 s ago": tuple(dead(after, leg_up=True, samples=samples()) for after in (14.9, 15)),
    "a program 10 and 10.1 s after a panic": tuple(
        back(lines=(line(-at, PANIC), line(0, "x", "vllm"))) for at in (10, 10.1)
    ),
    "a boot 5 and 5.1 s before its shutdown": tuple(back(-gap, clean_stop=MARK) for gap in (5, 5.1)),
    "a boot 300 and 301 s after its shutdown": tuple(back(gap, clean_stop=MARK) for gap in (300, 301)),
    "a boot 300 and 301 s after a shutdown in the journal": tuple(back(gap, lines=(SHUT_DOWN,)) for gap in (300, 301)),
    "a boot 120 and 121 s after a shutdown, where 120 s are usual": tuple(
        back(gap, clean_stop=MARK, pause_limit=120) for gap in (120, 121)
    ),
    "a boot a day after each kind of shutdown": tuple(
        back(86400, clean_stop=replace(MARK, target=target))
        for target in ("reboot", "poweroff", "Power-Off", "halt", "kexec", None)
    ),
    "a reset 599, 600, 1500 and 1501 s after a mark": tuple(
        back(gap, clean_stop=MARK, firmware=FIRMWARE) for gap in (599, 600, 1500, 1501)
    ),
    "a reset 59, 60, 420 and 421 s after a mark, where the watchdog takes 60 s": tuple(
        back(gap, clean_stop=MARK, firmware=FIRMWARE, shutdown_limit=60) for gap in (59, 60, 420, 421)
    ),
    "a shutdown in the last 60 lines, and before them": tuple(
        back(lines=(SHUT_DOWN, *(line(number / 100, "x") for number in range(more)))) for more in (59, 60)
    ),
    "a boot 0, 420 and 421 s after systemd stopped, and before it": tuple(
        back(gap, lines=(line(0, FROZEN, "systemd"),)) for gap in (0, 420, 421, -1)
    ),
    "a link that goes down 29, 30, 147 and 148 s after the last sample": tuple(
        back(400, samples=samples(), changes=(down(gap),), power_ons=WARM, lines=()) for gap in (29, 30, 147, 148)
    ),
    "memory that was refused 1200 and 1201 s before the end": tuple(
        back(samples=NO_MEMORY, lines=(line(-at, NVRM), line(0, "x"))) for at in (1200, 1201)
    ),
    "memory of which 2.9 and 3 % are left": tuple(
        back(samples=samples(available=share), lines=(line(-60, NVRM),)) for share in (0.029, 0.03)
    ),
    "memory that was scarce 59.5 and 60 s before the end": tuple(
        back(samples=(*samples(-at, seconds=9, available=0.01), *samples(seconds=20)), lines=(line(-60, NVRM),))
        for at in (59.5, 60)
    ),
    "refused memory that the recorder counted, and that it did not": tuple(
        back(samples=(*samples(-400, 0, available=0.01, no_memory=first), *samples(available=0.01, no_memory=last)))
        for first, last in ((0, 1), (1, 1), (None, 1))
    ),
    "pressure of 10 and 9.9 %": tuple(back(samples=samples(full=full)) for full in (10.0, 9.9)),
    "pressure for 270 and 269.5 s": tuple(back(samples=samples(seconds=270, full=34.0)[cut:]) for cut in (0, 1)),
    "pressure in 90 and 89.9 % of 5 minutes": tuple(
        back(samples=(*samples(-calm / 2, full=34.0), *samples(seconds=(calm - 1) // 2, full=0.0)[-calm:]))
        for calm in (59, 61)
    ),
    "pressure and refused memory, and a disk that lost its power": tuple(
        dead(20, samples=(*samples(-400, 0, full=34.0), *PRESSED), power_ons=count) for count in (None, WARM, COLD)
    ),
    "a link that goes down 3 and 3.1 s beside the last sample": tuple(
        dead(samples=samples(), changes=(down(at),)) for at in (3, 3.1, -3, -3.1)
    ),
    "a link that goes down 3 s beside the last sample of a node that is back, without the switch's log": tuple(
        back(samples=samples(), changes=(down(at, logged=False),), lines=()) for at in (3, 3.1, -3, -3.1)
    ),
    "a link that goes down before and with the begin of the present boot": tuple(
        back(2, samples=samples(), changes=(down(at),), lines=()) for at in (1.9, 2)
    ),
    "a leg with a link 60 and 59.9 s after the last sample": tuple(
        dead(after, leg_up=True, samples=samples(), silent=SILENT) for after in (60, 59.9)
    ),
    "a leg with a link 60 and 59.9 s after the last sample, and no other wire": tuple(
        dead(after, leg_up=True, samples=samples()) for after in (60, 59.9)
    ),
    "systemd that stopped 300 and 301 s ago": tuple(
        dead(after, lines=(line(0, FROZEN, "systemd", "remote journal"),), silent=SILENT) for after in (300, 301)
    ),
    "systemd that stopped 420 and 421 s ago, with a watchdog of 60 s": tuple(
        dead(after, lines=(line(0, FROZEN, "systemd", "remote journal"),), silent=SILENT, feeding=60.0)
        for after in (420, 421)
    ),
    "a link that stayed up for 59.9 and 60 s": tuple(dead(samples=samples(), changes=(down(at),)) for at in (59.9, 60)),
    "a link that stayed up for 147 and 148 s, with a watchdog of 60 s": tuple(
        dead(samples=samples(), changes=(down(at),), feeding=60.0) for at in (147, 148)
    ),
    "a line 3 and 3.1 s after the last sample, and a link that stayed up": tuple(
        dead(samples=samples(), changes=(down(3600),), lines=(line(at, "x", source="netconsole"),)) for at in (3, 3.1)
    ),
    "another node whose link goes down 3 and 3.1 s beside the end": tuple(
        replace(dead(samples=samples()), other_downs={"spark4": END + at}) for at in (3, 3.1, -3, -3.1)
    ),
    "a panic, and then a program, audit, systemd and a word of the kernel's log": tuple(
        back(lines=(line(-20, PANIC, source="remote journal"), line(0, "x", program, "remote journal")))
        for program in ("vllm", "audit", "systemd", "/dev/kmsg, as vllm", "kernel")
    ),
    "a panic and a shutdown at an unknown time": tuple(
        back(lines=(replace(one, time=None),)) for one in (line(0, PANIC), SHUT_DOWN)
    ),
    "a node that answers, with signs of life": (back(life=LIFE), back(life=LIFE, records=(PANIC,))),
    "a node that does not answer, with two signs of life": (dead(life=(*LIFE, "it sends frames")),),
    "systemd that stopped, in the kernel's log": (
        back(lines=(line(0, FROZEN, "/dev/kmsg, as systemd"),)),
        back(lines=(line(0, FROZEN, "vllm"),)),
    ),
    "pressure that begins 300 and 299.5 s before the last sample": tuple(
        back(
            samples=(
                *samples(-300, 60, full=34.0),
                *samples(seconds=300, full=0.0)[1 : 1 + calm],
                *samples(seconds=300, full=34.0)[1 + calm :],
            )
        )
        for calm in (59, 60, 61)
    ),
    "a margin of 1 K 120 and 119.5 s before the last sample": tuple(
        dead(samples=(*samples(-at, 0, margin=1.0), *samples(seconds=60))) for at in (120, 119.5)
    ),
    "a panic without and with words, alone and as the end of a record": tuple(
        back(records=(text,))
        for text in (
            "Kernel panic - not syncing",
            "<0>[ 9.1] [   T12] Kernel panic - not syncing: Oops: Fatal",
            "---[ end Kernel panic - not syncing: x ]---",
            "x Kernel panic - not syncing: x",
            "Kernel panic - not syncing: watchdog pretimeout event",
        )
    ),
}
"""Evidence at the last and the first value of each limit of the verdict."""


@pytest.fixture(scope="module")
def rack() -> Rack:
    units = {
        "qwen": serving_racks.unit(),
        "alone": serving_racks.unit(nodes=["n0"], parallel={"tensor": 1}, state="down"),
    }
    return serving_racks.loaded(serving_racks.text(units))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_report_on_the_screen(rack: Rack, name: str) -> None:
    generated.check(CASES, name, "\n".join((*lines(report_of(rack, WHOLE[name])), "")))


def test_each_limit_of_the_verdict_is_where_it_is(rack: Rack) -> None:
    found = []
    for name, cases in LIMITS.items():
        found.append(f"# {name}")
        for evidence in cases:
            whole = list(lines(report_of(rack, evidence)))
            found += [
                f"  {text}" for text in whole if text.startswith(("hint", "proof", "against", "remark", "spark3"))
            ]
            codes = {Cause.PLANNED: 0, Cause.UNKNOWN: 1}
            report = report_of(rack, evidence)
            assert report.code == codes.get(report.verdict, 2)
    generated.check(CASES, "limits", "\n".join((*found, "")))


def test_what_hosts_are_asked(rack: Rack) -> None:
    pairs = [("enp1s0f0np0", IPv4Address("192.168.100.3")), ("odd name", IPv4Address("192.168.101.3"))]
    asked = {
        **{f"node: {name}": text for name, text in questions.NODE.items()},
        **{f"receiver: {name}": text for name, text in questions.of_receiver("spark2", "a" * 32).items()},
        "receiver, any boot: remote": questions.of_receiver("spark2", None)[questions.REMOTE],
        "echoes": questions.echoes(pairs),
        **{f"bundle: {name}": text for name, text in questions.FILES.items()},
    }
    generated.check(TEXTS, "questions", "".join(f"# {name}\n{text}\n" for name, text in asked.items()))
    assert (questions.ABSENT, questions.BUNDLE_SECONDS) == (7, 300)

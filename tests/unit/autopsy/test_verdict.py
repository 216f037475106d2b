"""From evidence to a verdict: each class of ends that GB10 nodes have, and evidence that contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparkrack.autopsy import verdict as verdicts
from sparkrack.autopsy.evidence import Evidence, LegNow, Sample
from sparkrack.autopsy.report import timeline
from sparkrack.autopsy.verdict import Cause, judge, remarks
from tests.unit.autopsy.ends import (
    BOOT,
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

OOPS = """Oops#1 Part1
<1>[ 9411.2] Unable to handle kernel paging request at virtual address 0000000000000008
<0>[ 9411.3] Internal error: Oops: 0000000096000047 [#1] SMP
<4>[ 9411.3] pc : timerqueue_add+0x38/0xd0
"""
XID = "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."
LOCKUP = "watchdog: BUG: soft lockup - CPU#7 stuck for 23s! [python3:4711]"
STALL = "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"
WATCHDOG_PANIC = "Kernel panic - not syncing: SBSA Generic Watchdog timeout"
LIFE = ("192.168.100.3 answers spark1 on the fabric",)
SILENT = ("spark1 gets no answer of 192.168.100.3",)
WEDGED = samples(full=34.0, available=0.004)

KNOWN: Mapping[str, tuple[Evidence, Cause, str | None, str]] = {
    # --- a shutdown in order
    "planned: the mark": (back(clean_stop=MARK), Cause.PLANNED, "high", "had stopped all services for reboot"),
    "planned: the journal alone, of a node without the mark": (
        back(lines=(line(-1, SHUTDOWN, "systemd"), line(0, "Shutting down.", "systemd"))),
        Cause.PLANNED,
        "high",
        SHUTDOWN,
    ),
    "planned: a node that is off, by the remote journal": (
        dead(lines=(line(0, "Reached target poweroff.target - System Power Off.", "systemd", "remote journal"),)),
        Cause.PLANNED,
        "high",
        "poweroff.target",
    ),
    "planned: the link goes with the node, as with a power loss": (
        back(clean_stop=MARK, samples=samples(-1), changes=(down(1), up(40))),
        Cause.PLANNED,
        "high",
        "stopped all services",
    ),
    "planned: a node that was switched off, and on again a day later": (
        back(86400, clean_stop=replace(MARK, target="poweroff"), power_ons=COLD),
        Cause.PLANNED,
        "high",
        "stopped all services for poweroff",
    ),
    "planned: systemd and the kernel write on while file systems are unmounted": (
        back(120, clean_stop=MARK, lines=(line(80, "Unmounting /srv.", "systemd"), line(81, "x"))),
        Cause.PLANNED,
        "high",
        "stopped all services",
    ),
    "power: a packet with the words of a panic, and the node lived on": (
        back(
            300, samples=samples(), lines=(line(-200, PANIC, source="netconsole"),), changes=(down(0),), power_ons=COLD
        ),
        Cause.POWER,
        "medium",
        "1 more power-ons of the disk",
    ),
    "power: a program quoted a panic to the kernel's log, and the node lived on": (
        dead(samples=samples(), lines=(line(-20, PANIC),), changes=(down(0),)),
        Cause.POWER,
        "medium",
        "the link went down 0 s after the last sign of life",
    ),
    "panic: the trace goes on for some seconds": (
        back(lines=(line(-3, PANIC), line(0, "Call trace:"), line(2, "x", "vllm"))),
        Cause.PANIC,
        "high",
        "softlockup",
    ),
    "planned: a shutdown that the watchdog had to end": (
        back(700, clean_stop=MARK, firmware=("sbsa-gwdt sbsa-gwdt.0: System reset by WDT.",)),
        Cause.PLANNED,
        "medium",
        "the shutdown hung, and the hardware reports a reset by its watchdog",
    ),
    # --- A: the platform cuts the power at a load step
    "power: dead since, samples and link end in the same second": (
        dead(samples=samples(margin=-3.0), changes=(down(1, logged=False),)),
        Cause.POWER,
        "medium",
        "power, or a reset without a record",
    ),
    "power: on again by hand, and the disk counted it": (
        back(2400, samples=samples(), changes=(down(1), up(2390), down(2395)), power_ons=COLD),
        Cause.POWER,
        "high",
        "1 more power-ons of the disk",
    ),
    "power: no recorder, and the journal ends in the same second": (
        dead(lines=(line(-0.4, "half a line", "vllm", "remote journal"),), changes=(down(1, logged=False),)),
        Cause.POWER,
        "medium",
        "last sign of life (remote journal)",
    ),
    # --- B: memory
    "memory: pressure for 5 minutes, lines of NVRM, and the watchdog ended it": (
        back(samples=WEDGED, lines=(line(-780, NVRM), line(0, "x")), firmware=("System reset by WDT.",)),
        Cause.MEMORY_WEDGE,
        "medium",
        "all tasks waited for memory 34 % of the time",
    ),
    "memory: still dead": (
        dead(20, samples=WEDGED, lines=(line(-200, NVRM, source="netconsole"),)),
        Cause.MEMORY_WEDGE,
        "high",
        "all tasks waited",
    ),
    "memory: lines of NVRM and nothing available": (
        back(samples=samples(available=0.01), lines=(line(-60, NVRM),)),
        Cause.MEMORY_WEDGE,
        "medium",
        "the GPU was refused memory, and 1.0% of the memory",
    ),
    "memory: the node does not answer, and its kernel answers pings, as reported": (
        dead(200, samples=WEDGED, lines=(line(-200, NVRM, source="netconsole"),), life=LIFE),
        Cause.MEMORY_WEDGE,
        "medium",
        "all tasks waited",
    ),
    # --- C: the kernel
    "panic: the node runs again, and its management link is down": (
        dead(600, lines=(line(0, PANIC, source="remote journal"),), life=LIFE),
        Cause.PANIC,
        "medium",
        "softlockup",
    ),
    "panic: a record in pstore": (
        back(records=(f"<6>[ 1.0] x\n<0>[ 812.1] {PANIC}\n",)),
        Cause.PANIC,
        "high",
        "the kernel panicked: softlockup: hung tasks",
    ),
    "panic: netconsole of a node that is still dead, which reboots after 10 s; another host could have sent it": (
        dead(45, samples=samples(), lines=(line(0.2, PANIC, source="netconsole"),), changes=(down(11),)),
        Cause.PANIC,
        "medium",
        "softlockup",
    ),
    "panic: netconsole of a node whose kernel ends at once": (
        dead(45, samples=samples(), lines=(line(0.2, PANIC, source="netconsole"),), changes=(down(1),)),
        Cause.PANIC,
        "medium",
        "softlockup",
    ),
    "power: packets with the words of a panic that come again and again": (
        dead(
            samples=samples(),
            lines=tuple(line(second, PANIC, source="netconsole") for second in (-65, -5)),
            changes=(down(1),),
        ),
        Cause.POWER,
        "medium",
        "power, or a reset without a record",
    ),
    "panic: a kernel that panics after it quoted a panic": (
        back(lines=(line(-65, PANIC), line(-20, "x", "vllm"), line(0, PANIC))),
        Cause.PANIC,
        "high",
        "softlockup",
    ),
    "panic: the journal of a node that wrote on while others slept": (
        back(lines=(line(-30, "x", "vllm"), line(0, PANIC), line(2, "Rebooting in 10 seconds.."))),
        Cause.PANIC,
        "high",
        "softlockup",
    ),
    "panic: the watchdog reset the node after it": (
        back(records=(f"{PANIC}\n",), firmware=("System reset by WDT.",)),
        Cause.PANIC,
        "medium",
        "softlockup",
    ),
    # --- the watchdog
    "watchdog: the hardware says so": (
        back(firmware=("watchdog0 has CARDRESET in its bootstatus (32)",), changes=(down(62),), samples=samples()),
        Cause.WATCHDOG,
        "high",
        "CARDRESET",
    ),
    "watchdog: its first stage is a panic": (
        back(records=(f"<0>[ 99.1] {WATCHDOG_PANIC}\n",)),
        Cause.WATCHDOG,
        "high",
        "first stage caused a panic: SBSA Generic Watchdog timeout",
    ),
    "watchdog: systemd stopped, and the node came back by itself": (
        back(90, lines=(line(0, "Caught <ABRT>, dumped core.", "systemd"), line(0.1, FROZEN, "systemd"))),
        Cause.WATCHDOG,
        "medium",
        "the node booted again 90 s later; its watchdog acts after 60 s",
    ),
    "watchdog: systemd stopped, the recorder wrote on until the reset, and the link went with it": (
        back(90, samples=samples(60), lines=(line(0.1, FROZEN, "systemd"),), changes=(down(60), up(80))),
        Cause.WATCHDOG,
        "medium",
        "systemd stopped, and the node booted again 90 s later",
    ),
    "watchdog: a standstill, and the link goes down a limit later with the power on": (
        back(150, samples=samples(), changes=(down(64), up(140)), power_ons=WARM),
        Cause.WATCHDOG,
        "medium",
        "64 s after the last sample, and the disk kept its power",
    ),
    # --- D: a standstill without a trace
    "freeze: dead, and the link is up": (
        dead(1800, leg_up=True, samples=samples(), silent=SILENT),
        Cause.FREEZE,
        "medium",
        f"{LEG} has a link, and the last sample is 1800 s old; also spark1 gets no answer of 192.168.100.3",
    ),
    "freeze: switched off by hand after an hour": (
        dead(7200, samples=samples(), changes=(down(3600),)),
        Cause.FREEZE,
        "medium",
        "the link stayed up for 3600 s",
    ),
    "freeze: and a power-on of the disk by hand after that": (
        back(7200, samples=samples(), changes=(down(3600), up(7100), down(7150)), power_ons=COLD),
        Cause.FREEZE,
        "medium",
        "the link stayed up for 3600 s",
    ),
    "freeze: systemd stopped, and no watchdog acts": (
        dead(1200, lines=(line(0, FROZEN, "systemd", "remote journal"),), silent=SILENT),
        Cause.FREEZE,
        "medium",
        "systemd stopped 1200 s ago",
    ),
}

UNKNOWN: Mapping[str, tuple[Evidence, str]] = {
    "nothing at all": (dead(), "no source has a sign of life"),
    "a journal that ends, and nothing else": (back(), "no record of a shutdown, a panic or the watchdog"),
    "E: a node that stays without power leaves nothing else, either": (
        dead(lines=(line(0, "x", source="remote journal"),)),
        "no record of a shutdown",
    ),
    "G: it sends samples and gives no shell": (
        dead(2, leg_up=True, samples=samples()),
        "may be alive; look at its management link and its sshd",
    ),
    "its management link is down: it answers on the fabric": (
        dead(1800, leg_up=True, samples=samples(), life=LIFE),
        "the node does not answer, and 192.168.100.3 answers spark1 on the fabric: it may be alive",
    ),
    "one wire is silent, and another one is not": (
        dead(1800, leg_up=True, samples=samples(), life=LIFE, silent=("the switch receives no frame from x",)),
        "it may be alive",
    ),
    "systemd stopped, and programs run on": (
        dead(1200, lines=(line(0, FROZEN, "systemd", "remote journal"),), life=LIFE),
        "it may be alive",
    ),
    "no wire but its management link could be asked": (
        dead(1800, leg_up=True, samples=samples()),
        "a leg has a link, and no other wire could be asked: the node may be alive",
    ),
    "silent for half a minute, and the link is up": (dead(30, leg_up=True, samples=samples()), "no record"),
    "a reset by hand: the disk kept its power": (
        back(samples=samples(), changes=(down(0),), power_ons=WARM),
        "a reset without a record: the disk kept its power",
    ),
    "a power-on of the disk alone: it may have stood still before": (
        back(power_ons=COLD, samples=samples()),
        "lost its power at some time",
    ),
    "the link of a booting node says nothing without the switch's log": (
        back(600, samples=samples(), changes=(down(300, logged=False),)),
        "no record",
    ),
    "systemd stopped, and the node came back after an hour": (
        back(3600, lines=(line(0, FROZEN, "systemd"),)),
        "systemd stopped, and what ended the boot after that is unknown",
    ),
    "systemd stopped, and the node was reset after an hour": (
        back(3600, samples=samples(60), lines=(line(0, FROZEN, "systemd"),), changes=(down(60),), power_ons=WARM),
        "systemd stopped, and what ended the boot after that is unknown",
    ),
    "a shutdown that was only announced": (
        back(lines=(line(0, "The system will reboot now!", "systemd-logind"),)),
        "no record of a shutdown",
    ),
    "a program that writes the words of a panic": (back(lines=(line(0, PANIC, "vllm"),)), "no record"),
    "a lack of memory alone: it is refused every day": (back(lines=(line(-60, NVRM),)), "no record"),
    "pressure for a minute": (back(samples=samples(seconds=60, full=34.0)), "no record"),
    "a lack of memory an hour before": (
        back(samples=samples(available=0.01), lines=(line(-3600, NVRM), line(0, "x"))),
        "no record",
    ),
    # --- contradictions
    "a mark of a shutdown and a panic": (
        back(clean_stop=MARK, records=(f"{PANIC}\n",)),
        "the evidence contradicts itself: panic and planned",
    ),
    "memory gone for minutes, and the link dies with the last sample": (
        dead(samples=WEDGED, changes=(down(0),)),
        "the evidence contradicts itself: memory_wedge and power",
    ),
    "a mark of a shutdown, and the hardware reports a reset too early for a shutdown that hung": (
        back(clean_stop=MARK, firmware=("System reset by WDT.",)),
        "the evidence contradicts itself: planned and watchdog",
    ),
    "a mark of a shutdown, and more time than the firmware takes": (
        back(400, clean_stop=MARK),
        "planned; the present boot began 400 s after that shutdown: a boot between them may have left no trace",
    ),
    "a mark of a shutdown, and twice the time that this node takes: the next boot died at once": (
        back(150, clean_stop=MARK, pause_limit=120),
        "planned; the present boot began 150 s after that shutdown: a boot between them may have left no trace",
    ),
    "a journal that ends with a shutdown, and more time than the firmware takes": (
        back(400, lines=(line(0, SHUTDOWN, "systemd"),)),
        "a boot between them may have left no trace",
    ),
    "a mark of a shutdown after the begin of the present boot": (
        back(-60, clean_stop=MARK),
        "by clocks of which one is wrong",
    ),
    "a mark of a shutdown, and a panic that netconsole received": (
        back(clean_stop=MARK, lines=(line(0, PANIC, source="netconsole"),)),
        "the evidence contradicts itself: panic and planned",
    ),
    "a mark of a shutdown after which a program wrote on, as after a soft reboot": (
        back(400, clean_stop=MARK, lines=(line(210, "200 OK", "vllm"),)),
        "planned (mark of the shutdown): systemd had stopped all services for reboot, and programs ran on for 210 s",
    ),
    "a panic of which pstore has the record, and the disk counts a power-on at the last sign of life": (
        back(samples=samples(), records=(f"{PANIC}\n",), changes=(down(1),), power_ons=COLD),
        "the evidence contradicts itself: panic and power",
    ),
    "a packet with the words of a panic just before a power loss": (
        back(samples=samples(), lines=(line(-2, PANIC, source="netconsole"),), changes=(down(1),), power_ons=COLD),
        "the evidence contradicts itself: panic and power",
    ),
    "a panic in the journal, and the samples go on": (
        back(samples=samples(), lines=(line(-20, PANIC),)),
        "panic (journal): the kernel panicked: softlockup: hung tasks, and programs ran on for 20 s (samples)",
    ),
    "a program that quotes a panic in the log of the kernel": (
        back(lines=(line(0, f"usb 1-1: Product: {PANIC}"),)),
        "no record",
    ),
    "an oops": (
        back(samples=samples(), records=(OOPS,), changes=(down(0),), power_ons=WARM),
        "before that there was an oops (3 lines, the last one in pstore): ",
    ),
    "an Xid": (
        back(samples=samples(), lines=(line(-4, XID),), changes=(down(0),), power_ons=WARM),
        f"an Xid of the GPU (in journal 4 s before the last sign of life): {XID}",
    ),
    "a soft lockup and an RCU stall": (
        back(samples=samples(), lines=(line(-9, LOCKUP), line(-5, STALL)), changes=(down(0),), power_ons=WARM),
        f"a soft lockup (in journal 9 s before the last sign of life): {LOCKUP}; an RCU stall (in journal 5 s",
    ),
    "an error of the hardware that the firmware reports": (
        back(
            samples=samples(), hardware=("[Hardware Error]: event severity: fatal",), changes=(down(0),), power_ons=WARM
        ),
        "an error of the hardware before this boot, by its firmware: [Hardware Error]: event severity: fatal",
    ),
    "the link died with the last sample, and another leg of the node is up": (
        replace(
            dead(samples=samples(), changes=(down(0),), silent=SILENT),
            legs=(LegNow(LEG, False), LegNow("qsfp56-dd-1-3", True)),
        ),
        "the evidence contradicts itself: freeze and power",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_an_end_with_a_cause(name: str) -> None:
    evidence, cause, confidence, reason = KNOWN[name]
    verdict = judge(evidence)
    assert (verdict.cause, verdict.confidence) == (cause, confidence), verdict
    assert reason in " ".join((verdict.reason, *(sign.text for sign in verdict.signs)))
    assert verdict.signs
    assert all(sign.cause is cause for sign in verdict.signs)


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_end_without_one_is_unknown(name: str) -> None:
    evidence, reason = UNKNOWN[name]
    verdict = judge(evidence)
    assert (verdict.cause, verdict.confidence, verdict.signs) == (Cause.UNKNOWN, None, ()), verdict
    assert reason in verdict.reason


def test_each_cause_has_a_case() -> None:
    assert {cause for _, cause, _, _ in KNOWN.values()} | {Cause.UNKNOWN} == set(Cause)


def test_a_node_of_two_legs_loses_both() -> None:
    other = "qsfp56-dd-1-3"
    one = dead(samples=samples(), changes=(down(1), down(1, leg=other)))
    assert judge(one).cause is Cause.POWER
    late = dead(samples=samples(), changes=(down(1), down(120, leg=other)))
    assert judge(late).cause is not Cause.POWER


def test_nodes_that_die_at_the_same_time() -> None:
    one = replace(dead(samples=samples(), changes=(down(0),)), other_downs={"spark4": END + 1, "spark5": END - 9000})
    assert remarks(one) == ("link down at the same time: spark4; look at the mains and the switch first",)


def test_of_the_samples_one_in_ten_seconds_and_the_last_are_in_the_timeline() -> None:
    shown = [entry for entry in timeline(dead(samples=samples(seconds=25))) if entry.source == "samples"]
    assert [entry.at.timestamp() - END for entry in shown] == [-25, -15, -5, 0]
    assert [entry.text.startswith("last sample: ") for entry in shown] == [False, False, False, True]


@pytest.mark.parametrize(
    ("samples_of", "words"),
    [
        ({"margin": 2.0}, ()),
        (
            {"margin": 1.9},
            ("the GPU came within 1.9 °C of its limit in the last 2 minutes: lower blackbox.clock_cap",),
        ),
        ({"clock": 1000.0}, ()),
        ({"clock": 999.0, "utilization": 0.8}, ()),
        (
            {"clock": 999.0, "utilization": 0.81},
            (
                (
                    "the GPU ran below 1000 MHz under load: shut the node down, take its power supply off "
                    "the mains for 60 s"
                ),
            ),
        ),
    ],
)
def test_what_the_last_two_minutes_of_a_gpu_tell(samples_of: dict[str, Any], words: tuple[str, ...]) -> None:
    assert remarks(dead(samples=samples(**samples_of))) == words
    assert remarks(dead(samples=(*samples(-121, **samples_of), *samples(seconds=60)))) == ()


def test_what_decides_nothing_is_a_remark_of_one_sentence() -> None:
    evidence = dead(clocks_unknown=("spark2", "spark4"), earlier_records=("dmesg-1", "dmesg-2"), life=("it answers",))
    assert remarks(evidence) == (
        "the clock of spark2 is unknown: the times that it wrote are not used, so the verdict rests on fewer signs",
        "the clock of spark4 is unknown: the times that it wrote are not used, so the verdict rests on fewer signs",
        "it does not answer on its management link, and may be alive now: it answers",
        "a boot before the one that ended left a record of a panic, and that one did not collect it: dmesg-1, dmesg-2",
    )
    assert judge(replace(evidence, life=())).reason == (
        "no sign of life of the boot that ended has a known time: the clock of spark2, spark4 is unknown"
    )


def test_faults_are_counted_and_the_last_one_is_shown() -> None:
    evidence = dead(lines=(line(-9, XID), line(-4, XID), line(0, "x")), hardware=("first", "second"))
    assert remarks(evidence) == (
        f"{XID_NAME} (2 lines, the last one in journal 4 s before the last sign of life): {XID}",
        "an error of the hardware before this boot, by its firmware: second",
    )


XID_NAME = next(name for name, pattern in verdicts._FAULTS.items() if pattern.search(XID))


def test_what_other_nodes_and_the_mark_of_a_shutdown_say_is_in_the_timeline() -> None:
    evidence = replace(
        back(90, clean_stop=MARK, samples=(Sample(END, BOOT),), changes=(up(60),)),
        other_downs={"spark4": END + 1},
        lines=(),
    )
    found = [(entry.at.timestamp() - END, entry.source, entry.text) for entry in timeline(evidence)]
    assert found == [
        (0.0, "samples", "last sample: no figure is known"),
        (0.0, "mark of the shutdown", "all services are stopped, reboot"),
        (1.0, "switch", "spark4: link down"),
        (60.0, "switch", f"{LEG} link up"),
        (90.0, "node", "the present boot began"),
    ]

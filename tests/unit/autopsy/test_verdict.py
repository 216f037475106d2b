"""From evidence to a verdict: each class of ends that GB10 nodes have, and evidence that contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sparkrack.autopsy.evidence import Evidence, LegNow
from sparkrack.autopsy.verdict import Cause, judge, remarks
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

WATCHDOG_PANIC = "Kernel panic - not syncing: SBSA Generic Watchdog timeout"
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
    "planned: a shutdown that the watchdog had to end": (
        back(clean_stop=MARK, firmware=("sbsa-gwdt sbsa-gwdt.0: System reset by WDT.",)),
        Cause.PLANNED,
        "medium",
        "stopped all services",
    ),
    # --- A: the platform cuts the power at a load step
    "power: dead since, samples and link end in the same second": (
        dead(samples=samples(margin=-3.0), changes=(down(1, logged=False),)),
        Cause.POWER,
        "medium",
        "power, or a reset without a record",
    ),
    "power: on again by hand, and the disk counted it": (
        back(2400, samples=samples(), changes=(down(1), up(2390), down(2395)), disk=COLD),
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
    # --- C: the kernel
    "panic: a record in pstore": (
        back(records=(f"<6>[ 1.0] x\n<0>[ 812.1] {PANIC}\n",)),
        Cause.PANIC,
        "high",
        "the kernel panicked: softlockup: hung tasks",
    ),
    "panic: netconsole of a node that is still dead": (
        dead(5, samples=samples(), lines=(line(0.2, PANIC, source="netconsole"),), changes=(down(1),)),
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
        back(150, samples=samples(), changes=(down(64), up(140)), disk=WARM),
        Cause.WATCHDOG,
        "medium",
        "64 s after the last sample, and the disk kept its power",
    ),
    # --- D: a standstill without a trace
    "freeze: dead, and the link is up": (
        dead(1800, leg_up=True, samples=samples()),
        Cause.FREEZE,
        "medium",
        f"{LEG} has a link, and the last sample is 1800 s old",
    ),
    "freeze: switched off by hand after an hour": (
        dead(7200, samples=samples(), changes=(down(3600),)),
        Cause.FREEZE,
        "medium",
        "the link stayed up for 3600 s",
    ),
    "freeze: and a power-on of the disk by hand after that": (
        back(7200, samples=samples(), changes=(down(3600), up(7100), down(7150)), disk=COLD),
        Cause.FREEZE,
        "medium",
        "the link stayed up for 3600 s",
    ),
    "freeze: systemd stopped, and no watchdog acts": (
        dead(1200, lines=(line(0, FROZEN, "systemd", "remote journal"),)),
        Cause.FREEZE,
        "medium",
        "systemd stopped 1200 s ago",
    ),
}

UNKNOWN: Mapping[str, tuple[Evidence, str]] = {
    "nothing at all": (dead(), "no source has a sign of life"),
    "a journal that ends, and nothing else": (back(), "no record of a shutdown, a panic or the watchdog"),
    "E: a node without power for good leaves nothing else, either": (
        dead(lines=(line(0, "x", source="remote journal"),)),
        "no record of a shutdown",
    ),
    "G: it sends samples and gives no shell": (
        dead(2, leg_up=True, samples=samples()),
        "may be alive; look at its management link and its sshd",
    ),
    "silent for half a minute, and the link is up": (dead(30, leg_up=True, samples=samples()), "no record"),
    "a reset by hand: the disk kept its power": (
        back(samples=samples(), changes=(down(0),), disk=WARM),
        "a reset without a record: the disk kept its power",
    ),
    "a power-on of the disk alone: it may have stood still before": (
        back(disk=COLD, samples=samples()),
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
        back(3600, samples=samples(60), lines=(line(0, FROZEN, "systemd"),), changes=(down(60),), disk=WARM),
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
    "the link died with the last sample, and another leg of the node is up": (
        replace(dead(samples=samples(), changes=(down(0),)), legs=(LegNow(LEG, False), LegNow("qsfp56-dd-1-3", True))),
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


@pytest.mark.parametrize("second", [4, -4, 30])
def test_a_link_that_goes_down_at_another_time_is_no_power_loss(second: float) -> None:
    found = judge(dead(samples=samples(), changes=(down(second),)))
    assert found.cause is Cause.UNKNOWN, found


def test_a_node_of_two_legs_loses_both() -> None:
    other = "qsfp56-dd-1-3"
    one = dead(samples=samples(), changes=(down(1), down(1, leg=other)))
    assert judge(one).cause is Cause.POWER
    late = dead(samples=samples(), changes=(down(1), down(120, leg=other)))
    assert judge(late).cause is not Cause.POWER


def test_nodes_that_die_at_the_same_time() -> None:
    one = replace(dead(samples=samples(), changes=(down(0),)), other_downs={"spark4": END + 1, "spark5": END - 9000})
    assert remarks(one) == ("link down at the same time: spark4; look at the mains and the switch first",)


def test_f_a_clock_that_stays_low_under_load() -> None:
    assert "below 1000 MHz" in remarks(dead(samples=samples(clock=610.0)))[0]
    assert remarks(dead(samples=samples(clock=610.0, utilization=0.1))) == ()


def test_a_margin_that_was_used_up() -> None:
    assert "within -7 °C of its limit" in remarks(dead(samples=samples(margin=-7.0)))[0]

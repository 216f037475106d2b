"""Evidence of ends as they were reported of GB10 nodes, for the tests of the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkrack.autopsy.evidence import CleanStop, Evidence, LegNow, LinkChange, LogLine, Sample

END = 1_795_000_000.0
"""The last sign of life of most of them."""
BOOT, NEXT = "a" * 32, "b" * 32
LEG = "qsfp56-dd-1-1"
NVRM = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] _memdescAllocInternal"
PANIC = "Kernel panic - not syncing: softlockup: hung tasks"
SHUTDOWN = "Reached target reboot.target - System Reboot."
FROZEN = "Freezing execution."


def line(second: float, text: str, program: str = "kernel", source: str = "journal") -> LogLine:
    return LogLine(END + second, source, program, text)


def samples(until: float = 0.0, seconds: int = 400, **figures: Any) -> tuple[Sample, ...]:
    """Two samples a second up to `until` seconds after END; a node under load unless `figures` say otherwise."""
    usual: dict[str, Any] = {
        "available": 0.22,
        "full": 0.0,
        "no_memory": 0,
        "clock": 2190.0,
        "utilization": 0.96,
        "margin": 6.0,
        "power": 92.0,
    }
    steps = range(-2 * seconds, 1)
    return tuple(Sample(time=END + until + step / 2, boot=BOOT, **{**usual, **figures}) for step in steps)


def down(second: float, *, logged: bool = True, leg: str = LEG) -> LinkChange:
    return LinkChange(leg, END + second, up=False, logged=logged)


def up(second: float) -> LinkChange:
    return LinkChange(LEG, END + second, up=True, logged=True)


def dead(after: float = 600.0, *, leg_up: bool | None = False, **found: Any) -> Evidence:
    """A node that does not answer, so many seconds after END."""
    return Evidence(node="spark3", asked=END + after, alive=False, ended=BOOT, legs=(LegNow(LEG, leg_up),), **found)


def back(after: float = 90.0, **found: Any) -> Evidence:
    """A node that booted again so many seconds after END, and answers; systemd feeds its watchdog."""
    usual: dict[str, Any] = {"feeding": 60.0, "lines": (line(-2, "usb 1-1: new device"),)}
    one = Evidence(node="spark3", asked=END + after + 120, alive=True, boot=NEXT, began=END + after, ended=BOOT)
    return replace(one, legs=(LegNow(LEG, True),), **{**usual, **found})


MARK = CleanStop(END, "reboot")
COLD, WARM = 1, 0
"""How often the disk got its power."""

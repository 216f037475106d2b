"""Prove a node's time: what the kernel, timedated and the daemon itself report, not the files that were written."""

from __future__ import annotations

import re
import time

import pytest

from core.model import Node, Rack
from core.ssh.client import Machine
from core.verify.node_answers import output
from core.verify.reporter import CheckReporter
from roles.time.desired import CHRONY, MANAGED, OTHERS, TIMESYNCD, servers
from roles.time.options import TimeOptions

MOST_OFFSET = 0.5
"""Seconds. A daemon steps the clock for an offset above 0.4 s (systemd-timesyncd), so a larger one is not corrected."""
POLL_SECONDS = 36.0
"""Seconds after which systemd-timesyncd, which has corrected the clock, has measured again: it asks after 32 s. Until
then it shows the offset from before the correction."""
_UNITS = {"min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@pytest.fixture
def declared(rack: Rack) -> TimeOptions:
    """The declared time servers and time zone."""
    found = rack.declared(TimeOptions)
    if found is None:
        pytest.skip("rack.yaml declares no time servers")
    return found


@pytest.fixture
def daemon(node: Node, machine: Machine, declared: TimeOptions) -> str:  # noqa: ARG001
    """The unit of the daemon that runs."""
    running = [unit for unit in MANAGED if state(machine, "is-active", unit) == "active"]
    assert len(running) == 1, f"{node.name}: {' and '.join(running) or 'no time daemon'} runs, wanted one"
    return running[0]


def state(machine: Machine, question: str, unit: str) -> str:
    """Return systemd's word for a unit; its exit status is not zero for most of them."""
    return str(machine.run(f"systemctl {question} {unit}").stdout).strip()


def tracking(node: Node, machine: Machine) -> list[str]:
    """Return the fields of `chronyc tracking`: the second is the server, the fifth the offset in seconds."""
    # claim: time.daemons
    fields = output(node, machine, "chronyc -c -N tracking").strip().split(",")
    assert len(fields) >= 14, f"{node.name}: chronyc tracking: unexpected output {','.join(fields)[:80]!r}"
    return fields


def seconds(span: str) -> float | None:
    """Convert a time span as systemd writes it, like +1min 2.5s or -412us; None for any other text."""
    if not re.fullmatch(r"[+-]?(0|(\d+(\.\d+)?(min|s|ms|us) ?)+)", span):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(min|ms|us|s)", span))
    return -total if span.startswith("-") else total


def measured(node: Node, machine: Machine) -> tuple[float | None, str]:
    """Return the offset that systemd-timesyncd measured last, in seconds, and its text."""
    shown = output(node, machine, "timedatectl timesync-status")
    match = re.search(r"^ *Offset: *(.+?) *$", shown, re.MULTILINE)
    assert match, f"{node.name}: {TIMESYNCD} has measured no offset: no server has answered yet"
    return seconds(match[1]), match[1]


def test_the_clock_is_synchronized(node: Node, machine: Machine, declared: TimeOptions) -> None:  # noqa: ARG001
    """The kernel has the clock as synchronized, which it forgets when no daemon adjusts it for hours."""
    found = output(node, machine, "timedatectl show --property=NTPSynchronized --value").strip()
    assert found == "yes", f"{node.name}: NTPSynchronized is {found or 'unknown'}, wanted yes"


def test_the_time_zone_is_the_declared_one(node: Node, machine: Machine, declared: TimeOptions) -> None:
    """The zone that timedated reports."""
    if declared.time_zone is None:
        pytest.skip("rack.yaml declares no time zone")
    found = output(node, machine, "timedatectl show --property=Timezone --value").strip()
    assert found == declared.time_zone, f"{node.name}: time zone is {found or 'unknown'}, wanted {declared.time_zone}"


def test_one_daemon_starts_at_boot(node: Node, machine: Machine, daemon: str, report: CheckReporter) -> None:
    """The daemon that runs is enabled, and no other one is."""
    faults = []
    if (found := state(machine, "is-enabled", daemon)) != "enabled":
        faults.append(f"{daemon} is {found or 'unknown'}, wanted enabled")
    others = [unit for unit in (*MANAGED, *OTHERS) if unit != daemon]
    faults += [f"{unit} is enabled, and {daemon} runs" for unit in others if _starts_at_boot(machine, unit)]
    report.judge(f"{node.name}: {fault}" for fault in faults)


def _starts_at_boot(machine: Machine, unit: str) -> bool:
    return state(machine, "is-enabled", unit) == "enabled"


def test_the_server_in_use_is_declared(node: Node, machine: Machine, rack: Rack, daemon: str) -> None:
    """The server that the daemon itself names."""
    if daemon == CHRONY:
        used = tracking(node, machine)[1]
    else:
        used = output(node, machine, "timedatectl show-timesync --property=ServerName --value").strip()
    wanted = servers(rack)
    assert used in wanted, f"{node.name}: {daemon} uses {used or 'no server'}, wanted {' or '.join(wanted)}"


def test_the_offset_is_small(node: Node, machine: Machine, daemon: str) -> None:
    """The offset of the clock that the daemon has measured."""
    if daemon == TIMESYNCD:
        end = time.monotonic() + POLL_SECONDS
        offset, text = measured(node, machine)
        while offset is not None and abs(offset) > MOST_OFFSET and time.monotonic() < end:
            time.sleep(2)
            offset, text = measured(node, machine)
    else:
        fields = tracking(node, machine)
        assert fields[13] in ("Normal", "Insert second", "Delete second"), f"{node.name}: chrony is {fields[13]}"
        offset, text = seconds(f"{fields[4]}s"), fields[4]
    assert offset is not None, f"{node.name}: {daemon}: unexpected offset {text[:40]!r}"
    assert abs(offset) <= MOST_OFFSET, f"{node.name}: clock is off by {offset:+.3f} s, wanted at most {MOST_OFFSET} s"

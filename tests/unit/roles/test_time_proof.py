"""The proof of the time role: it passes on a node that is right, and each thing broken fails it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.model import Rack
from core.verify.reporter import CheckReporter
from roles.time import desired, verify
from roles.time.options import TimeOptions
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in
from tests.unit.roles.checked_node import Machine

TRACKING = "0A4D0001,10.77.0.1,3,1700000000.1,{offset},0.00001,0.00002,1.5,0.0,0.1,0.001,0.0002,64.2,{leap}"
RIGHT = {
    "NTPSynchronized": "yes",
    "Timezone": "Europe/Berlin",
    "ServerName": "ntp.example.org",
    "offset": "+2.195ms",
    "active": desired.TIMESYNCD,
    "enabled": desired.TIMESYNCD,
    "tracking": TRACKING.format(offset="-0.000012", leap="Normal"),
}


def rack() -> Rack:
    line = "time: {ntp: [10.77.0.1, ntp.example.org], time_zone: Europe/Berlin}"
    return loaded(changed(SWITCH, ("rack: two", f"rack: two\n{line}")))


def node(root: Path, **broken: str) -> Path:
    """A node whose tools answer as one that is right, but for these."""
    reported = {**RIGHT, **broken}
    shown = "".join(f"*={key}\\ *) echo '{reported[key]}';; " for key in ("NTPSynchronized", "Timezone", "ServerName"))
    offset = f"echo '       Offset: {reported['offset']}'" if reported["offset"] else ":"
    stand_in(root, "timedatectl", f'case "$*" in {shown} timesync-status) echo "  Packet count: 3"; {offset};; esac')
    answers = "".join(
        f"*is-{key}\\ {unit}*) echo {key};; " for key in ("active", "enabled") for unit in reported[key].split()
    )
    stand_in(root, "systemctl", f'case "$*" in {answers} *) echo no; exit 3;; esac')
    stand_in(root, "chronyc", f"echo '{reported['tracking']}'")
    return root


def failures(root: Path) -> list[str]:
    two = rack()
    one, machine, options = two.nodes["spark1"], Machine(root), two.options(TimeOptions)
    reported: list[str] = []

    def check(test: Callable[..., Any], *arguments: object) -> None:
        try:
            test(*arguments)
        except AssertionError as error:
            reported.append(str(error).splitlines()[0])

    check(verify.test_the_clock_is_synchronized, one, machine, options)
    check(verify.test_the_time_zone_is_the_declared_one, one, machine, options)
    running = [unit for unit in desired.MANAGED if verify.state(machine, "is-active", unit) == "active"]
    for unit in running:
        check(verify.test_one_daemon_starts_at_boot, one, machine, unit, CheckReporter([]))
        check(verify.test_the_server_in_use_is_declared, one, machine, two, unit)
        check(verify.test_the_offset_is_small, one, machine, unit)
    return reported


CHRONY = {"active": desired.CHRONY, "enabled": desired.CHRONY}


@pytest.mark.parametrize("with_daemon", [{}, CHRONY], ids=["timesyncd", "chrony"])
def test_a_node_that_is_right(tmp_path: Path, with_daemon: dict[str, str]) -> None:
    assert failures(node(tmp_path, **with_daemon)) == []


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"NTPSynchronized": "no"}, "NTPSynchronized is no, wanted yes"),
        ({"NTPSynchronized": ""}, "NTPSynchronized is unknown, wanted yes"),
        ({"Timezone": "Etc/UTC"}, "time zone is Etc/UTC, wanted Europe/Berlin"),
        ({"ServerName": "ntp.ubuntu.com"}, "uses ntp.ubuntu.com, wanted 10.77.0.1 or ntp.example.org"),
        ({"ServerName": ""}, "uses no server, wanted 10.77.0.1 or ntp.example.org"),
        ({"offset": "-1min 2.5s"}, "clock is off by -62.500 s, wanted at most 0.5 s"),
        ({"offset": "perhaps"}, "unexpected offset 'perhaps'"),
        ({"offset": ""}, "has measured no offset"),
        ({"enabled": "none"}, "systemd-timesyncd.service is no, wanted enabled"),
        ({"enabled": f"{desired.TIMESYNCD} ntpsec.service"}, "ntpsec.service is enabled"),
        ({**CHRONY, "tracking": TRACKING.format(offset="0.7", leap="Normal")}, "clock is off by +0.700 s"),
        ({**CHRONY, "tracking": TRACKING.format(offset="0", leap="Not synchronised")}, "chrony is Not synchronised"),
        ({**CHRONY, "tracking": RIGHT["tracking"].replace("10.77.0.1", "pool.x")}, "uses pool.x, wanted"),
        ({**CHRONY, "tracking": "506 Cannot talk to daemon"}, "unexpected output '506 Cannot talk to daemon'"),
    ],
)
def test_what_is_broken_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, str], line: str
) -> None:
    monkeypatch.setattr(verify, "POLL_SECONDS", 0.0)
    reported = failures(node(tmp_path, **broken))
    assert any(line in one for one in reported), reported


def test_an_offset_from_before_a_correction_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = node(tmp_path, offset="-599.786s")
    waits: list[float] = []

    def poll(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            node(root, offset="-412us")

    monkeypatch.setattr(verify, "time", SimpleNamespace(monotonic=time.monotonic, sleep=poll))
    assert failures(root) == []
    assert len(waits) == 3


def test_a_tool_that_fails_is_no_proof(tmp_path: Path) -> None:
    root = node(tmp_path)
    stand_in(root, "timedatectl", "echo 'Failed to connect to bus' >&2; exit 1")
    assert len([line for line in failures(root) if line.endswith("Failed to connect to bus")]) == 4


@pytest.mark.parametrize(
    ("span", "value"),
    [("+412us", 0.000412), ("-1.5ms", -0.0015), ("+2.003s", 2.003), ("0", 0), ("1h", None), ("", None)],
)
def test_time_spans_of_systemd(span: str, value: float | None) -> None:
    assert verify.seconds(span) == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("active", "line"), [("none", "no time daemon runs, wanted one"), (" ".join(desired.MANAGED), " runs, wanted one")]
)
def test_one_daemon_must_run(tmp_path: Path, active: str, line: str) -> None:
    two = rack()
    function: Any = verify.daemon
    plain = getattr(function, "__wrapped__", None) or function._get_wrapped_function()
    with pytest.raises(AssertionError, match=line):
        plain(SimpleNamespace(name="spark1"), Machine(node(tmp_path, active=active)), two.options(TimeOptions))

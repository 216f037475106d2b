"""What a switch answers -> what is reported of it -> the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.model import Rack
from sparkrack.status.model import About, Status, SwitchStatus
from switch.advisories import COMPROMISED
from switch.offload import REMEDY, Forwarding
from tests.unit.model.racks import RING
from tests.unit.status.machines import Machines, machines, reference

LEG = "qsfp56-dd-1-3"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    return reference(tmp_path_factory.mktemp("rack"))


def after(rack: Rack, *changes: Callable[[Machines], object]) -> tuple[SwitchStatus, Status]:
    made = machines(rack)
    for change in changes:
        change(made)
    status = made.status()
    return status.switches[0], status


def leg(**fields: str) -> Callable[[Machines], object]:
    return lambda made: made.links[LEG].update(fields)


def test_a_healthy_switch(rack: Rack) -> None:
    found, status = after(rack)
    assert (found.version, found.identity, found.temperature) == ("7.25.2 (stable)", "crs812", 52)
    assert found.uptime == ((10 * 24 + 4) * 60 + 5) * 60 + 6
    assert [(one.up, one.rate) for one in found.legs] == [(True, "100Gbps")] * 8
    assert {one.interface: one.port for one in found.legs}[LEG] == "spark2/1"
    assert (found.wrong, found.unknown, found.notes, status.code) == ((), (), (), 0)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "no-link"}, "has no link, the switch reports no-link"),
        ({"rate": "50Gbps"}, "rate 50Gbps, wanted 100Gbps"),
        ({"fec": "off"}, "fec off, wanted fec91"),
        ({"fec": "\x1b[2J"}, "fec \\x1b[2J, wanted fec91"),
        ({"status": "no\nlink"}, "has no link, the switch reports no\\nlink"),
    ],
)
def test_a_leg_that_is_not_as_declared(fields: dict[str, str], text: str, rack: Rack) -> None:
    found, status = after(rack, leg(**fields))
    assert [finding.text for finding in found.wrong] == [f"leg {LEG} (spark2/1): {text}"]
    assert (found.unknown, status.code) == ((), 2)


@pytest.mark.parametrize("reported", ["", "unknown", None])
def test_a_leg_that_does_not_tell_whether_it_is_linked(reported: str | None, rack: Rack) -> None:
    found, status = after(
        rack, lambda made: made.links.pop(LEG) if reported is None else made.links[LEG].update(status=reported)
    )
    assert [finding.text for finding in found.unknown] == [
        f"leg {LEG} (spark2/1): the switch does not report whether it is linked"
    ]
    assert (found.wrong, status.code) == ((), 1)
    assert {one.interface: one.up for one in found.legs}[LEG] is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rate": ""}, "the switch does not report its speed"),
        ({"rate": "\x1b[2J"}, "the switch does not report its speed"),
        ({"fec": ""}, "the switch does not report its FEC"),
    ],
)
def test_a_linked_leg_that_does_not_tell_all(fields: dict[str, str], text: str, rack: Rack) -> None:
    found, status = after(rack, leg(**fields))
    assert [finding.text for finding in found.unknown] == [f"leg {LEG} (spark2/1): {text}"]
    assert (found.wrong, status.code) == ((), 1)
    assert {one.interface: one.up for one in found.legs}[LEG] is True


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        (lambda made: made.resource.pop("version"), "the switch does not report its version"),
        (lambda made: made.resource.update(version=""), "the switch does not report its version"),
        (lambda made: made.resource.update(uptime="soon"), "the switch does not report its uptime"),
        (lambda made: made.resource.pop("uptime"), "the switch does not report its uptime"),
        (lambda made: made.identity.clear(), "the switch does not report its identity"),
    ],
)
def test_unknown(change: Callable[[Machines], object], unknown: str, rack: Rack) -> None:
    found, status = after(rack, change)
    assert ([finding.text for finding in found.unknown], status.code) == ([unknown], 1)


def test_another_identity(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.identity.update(name="MikroTik"))
    assert ([finding.text for finding in found.wrong], status.code) == (["identity is MikroTik, wanted crs812"], 2)


@pytest.mark.parametrize(
    ("rows", "heat", "notes"),
    [
        (None, None, ()),
        ([], None, ()),
        ([{"name": "cpu-temperature", "value": "hot"}], None, ()),
        ([{"name": "cpu-temperature"}, {"value": "9"}, {}], None, ()),
        ([{"name": "cpu-temperature", "value": "41.5"}, {"name": "board-temperature1", "value": "-3"}], 41.5, ()),
        (
            [{"name": "psu1-state", "value": "ok"}, {"name": "psu2-state", "value": "fail"}],
            None,
            ("psu2-state is fail",),
        ),
        ([{"name": "a\x1b-state", "value": "\n"}], None, ("a\\x1b-state is \\n",)),
    ],
)
def test_sensors_are_worth_knowing(
    rows: list[dict[str, str]] | None, heat: float | None, notes: tuple[str, ...], rack: Rack
) -> None:
    found, status = after(rack, lambda made: setattr(made, "health", rows))
    assert (found.temperature, found.notes, status.code) == (heat, notes, 0)


def test_a_silent_switch(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.silent.update(crs812="no answer\x1b"))
    assert (found.reachable, found.unknown[0].text, status.code) == (False, "no answer\\x1b", 1)
    assert [one.up for one in found.legs] == [None] * 8


def test_a_rack_without_a_switch(tmp_path: Path) -> None:
    status = machines(reference(tmp_path, RING)).status()
    assert (status.switches, status.code) == ((), 0)


def test_a_rollback_timer_that_a_run_left_is_reported(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.armed.append("sparkrack-undo-1"))
    assert [finding.text for finding in found.wrong] == [
        "rollback timer sparkrack-undo-1 is armed and will undo an interrupted run; disarm it: sparkrack apply"
    ]
    assert status.code == 2


def test_the_rollback_timer_of_a_run_in_progress_is_no_fault(rack: Rack) -> None:
    def in_progress(made: Machines) -> None:
        made.armed.append("sparkrack-undo-1")
        made.safe_mode = True

    found, status = after(rack, in_progress)
    assert found.notes == ("a run is in progress: rollback timer sparkrack-undo-1 is armed and safe mode is held",)
    assert (found.wrong, status.code) == ((), 0)


def test_a_leg_that_the_cpu_forwards_is_reported(rack: Rack) -> None:
    def stale(made: Machines) -> None:
        made.frames = Forwarding(by_cpu=(LEG,))

    found, status = after(rack, stale)
    assert [finding.text for finding in found.wrong] == [
        f"leg {LEG} (spark2/1): the CPU forwards its frames, not the chip; {REMEDY}"
    ]
    assert status.code == 2


def test_without_traffic_nothing_is_wrong_and_that_is_said(rack: Rack) -> None:
    def idle(made: Machines) -> None:
        made.frames = Forwarding(unseen=(LEG,))

    found, status = after(rack, idle)
    assert found.notes == ("no traffic seen on 1 leg: unknown whether the chip or the CPU forwards their frames",)
    assert (found.wrong, status.code) == ((), 0)


def test_a_release_that_attackers_use_is_a_difference(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.resource.update(version="7.23.3 (long-term)"))
    assert [(one.about, one.text.partition(":")[0]) for one in found.wrong] == [
        (About.VERSION, "RouterOS 7.23.3 (long-term)")
    ] * 3
    assert "attackers take switches over by SSH" in found.wrong[0].text
    assert status.code == 2


def test_what_does_not_open_the_switch_is_a_note(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.resource.update(version="7.24.4 (stable)"))
    assert "schedules with the default start date and time never run" in found.notes[0]
    assert (found.wrong, status.code) == ((), 0)


def test_a_switch_that_routeros_has_marked_as_compromised(rack: Rack) -> None:
    found, status = after(rack, lambda made: setattr(made, "device_mode", [{"mode": "advanced", "flagged": "true"}]))
    assert [(one.about, one.text) for one in found.wrong] == [(About.DEVICE_MODE, COMPROMISED)]
    assert status.code == 2


@pytest.mark.parametrize("mode", [None, [{"mode": "advanced", "flagged": "perhaps"}]])
def test_a_device_mode_that_is_not_reported_is_unknown(rack: Rack, mode: list[dict[str, str]] | None) -> None:
    found, status = after(rack, lambda made: setattr(made, "device_mode", mode))
    assert [one.about for one in found.unknown] == [About.DEVICE_MODE]
    assert status.code == 1

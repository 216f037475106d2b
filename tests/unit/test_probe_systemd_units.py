"""The parser of what `systemctl show` prints of units."""

from __future__ import annotations

import pytest

from core.probes.systemd_units import SystemdUnit, parse_units, show_units

ANSWER = """Id=ssh.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=yes

Id=none.timer
LoadState=not-found
ActiveState=inactive
UnitFileState=
NeedDaemonReload=no
"""


def test_each_unit_has_its_own_state() -> None:
    found = parse_units("units", ANSWER, ("ssh.service", "none.timer"))
    assert found == {
        "ssh.service": SystemdUnit("loaded", "active", "enabled", reload=True),
        "none.timer": SystemdUnit("not-found", "inactive", ""),
    }


def test_the_properties_that_are_parsed_are_those_that_are_asked() -> None:
    (asked,) = (word for word in show_units(("ssh.service",)).split() if word.startswith("--property="))
    names = asked.partition("=")[2].split(",")
    assert names == [line.partition("=")[0] for line in ANSWER.split("\n\n")[0].splitlines()]


def test_a_wanted_unit_without_an_answer_is_unknown() -> None:
    with pytest.raises(ValueError, match=r"units: cron\.service: no answer"):
        parse_units("units", ANSWER, ("ssh.service", "cron.service"))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("Id=ssh.service", ""),
        ("Id=ssh.service", "Id=ssh service"),
        ("LoadState=loaded", "LoadState="),
        ("ActiveState=active", "ActiveState=?"),
        ("NeedDaemonReload=yes", ""),
        ("NeedDaemonReload=yes", "NeedDaemonReload=?"),
    ],
)
def test_an_answer_without_a_property_is_unknown(line: str, instead: str) -> None:
    with pytest.raises(ValueError, match="units: unexpected probe output"):
        parse_units("units", ANSWER.replace(line, instead, 1), ("ssh.service",))


@pytest.mark.parametrize(
    ("load", "file", "masked"),
    [
        ("masked", "masked", True),
        ("masked", "", True),
        ("loaded", "masked-runtime", True),
        ("loaded", "enabled", False),
        ("not-found", "", False),
    ],
)
def test_a_unit_is_masked_as_systemd_has_it_loaded_or_will_load_it(load: str, file: str, masked: bool) -> None:
    """A mask counts from its file on, and its end only once systemd has read that."""
    assert SystemdUnit(load, "inactive", file).masked is masked


@pytest.mark.parametrize(
    ("active", "running", "settled"),
    [("active", True, True), ("activating", True, False), ("failed", False, False), ("deactivating", False, False)],
)
def test_a_unit_in_a_restart_loop_runs_and_is_not_settled(active: str, running: bool, settled: bool) -> None:
    unit = SystemdUnit("loaded", active, "enabled")
    assert (unit.running, unit.settled) == (running, settled)

"""A leg whose frames the CPU forwards after its link was trained again: a run heals those that it restarts itself, and
every look tells of the others."""

from __future__ import annotations

from tests.emulator.emulator_process import Crs812Process
from tests.emulator.switch_runs import Workdir, unharmed, waits_for
from tests.emulator.test_switch_api import open_session

LEG = "qsfp56-dd-1-3"
BY_CPU = "the CPU forwards its frames, not the chip"


def settled(emulator: Crs812Process) -> None:
    """Wait until no cage restarts any more."""
    waits_for(lambda: "initializing" not in emulator.links().values())


def frames(emulator: Crs812Process) -> dict[str, int]:
    """How many frames the CPU took, by interface."""
    rows = emulator.state()["tables"]["/interface/ethernet"]
    return {row["default-name"]: int(row["driver-rx-packet"]) for row in rows}


def test_a_run_heals_the_legs_that_it_restarts(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "retrain"})
    ended = workdir.run("-y")
    assert ended.code == 0, ended.text
    legs = [f"qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)]
    taken = frames(workdir.emulator)
    assert [taken[name] for name in legs] == [0] * 8
    assert taken["qsfp56-dd-1-2"] == 0, "no link, no frames"
    binds = workdir.sent("/interface/bridge/port/set")
    assert [line.split("=hw=")[1].split()[0] for line in binds] == ["no", "yes"] * 2
    again = workdir.run("-y")
    assert again.lines("No changes")
    assert BY_CPU not in again


def test_a_rollback_heals_the_legs_that_it_restarts(applied: Workdir) -> None:
    """Every cage that comes up leaves its legs to the CPU; the run fails after it has restarted one."""
    emulator = applied.emulator
    with open_session(emulator) as session:
        (lane,) = session.talk("/interface/ethernet/print", "=.proplist=.id", f"?default-name={LEG}")
        session.talk("/interface/ethernet/set", f"=.id={lane['.id']}", "=speed=50G-baseCR2")
        session.talk("/system/identity/set", "=name=old")
    settled(emulator)
    before = applied.tables()
    emulator.control({"op": "retrain"})
    emulator.control({"op": "fault", "kind": "trap", "match": "/system/identity/set"})
    ended = applied.run("-y")
    unharmed(ended, applied)
    assert applied.tables() == before
    assert emulator.state()["safe_mode"]["holder"] is None
    (reported,) = ended.lines("restarted with the rollback and are up as before")
    assert "; 3 of their bridge ports are bound to the chip again" in reported or "; 4 of their" in reported
    links, taken = emulator.links(), frames(emulator)
    legs = [name for name in (f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)) if links[name] == "link-ok"]
    assert len(legs) >= 3
    assert [taken[name] for name in legs] == [0] * len(legs)


def test_a_run_tells_of_a_leg_that_was_left_to_the_cpu_before(applied: Workdir) -> None:
    applied.emulator.control({"op": "stale", "interface": LEG})
    ended = applied.run("--dry")
    assert ended.code == 0, ended.text
    (line,) = ended.lines(BY_CPU)
    assert f"leg crs812/{LEG} (cage qsfp56-dd-1, lanes 3-4, to spark2 port 1)" in line
    assert "set hw=no and hw=yes on its bridge port again" in line


def test_without_traffic_it_is_unknown_and_no_fault(applied: Workdir) -> None:
    applied.emulator.control({"op": "stale", "interface": LEG})
    applied.emulator.control({"op": "quiet"})
    ended = applied.run("--dry")
    assert ended.code == 0, ended.text
    assert BY_CPU not in ended
    assert ended.lines("no traffic seen on 8 legs: unknown whether the chip or the CPU forwards their frames")

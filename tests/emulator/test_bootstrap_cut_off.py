"""First contact that is cut off anywhere: the next run ends it, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.emulator.bootstrap_runs import THERE, Way, Workdir, boxed
from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.tiers import sampled

STEPS = (
    *("/certificate/add", "/certificate/sign", "/ip/service/set", "/user/group/add", "/user/add"),
    *("/ip/address/add", "/ip/address/remove", "/user/set", "/ip/service/set"),
)
"""Every write from the box into the rack, in order."""

SAFE_MODES = 4
"""How often safe mode is taken on the way: for the new address, for the old one, for admin, for the ways in."""

WRITES = [{"on": "write", "after": number} for number in range(len(STEPS))]
RELEASES = [{"match": "/safe-mode/release", "after": number} for number in range(SAFE_MODES)]
FAULTS = 4


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    """One switch for the whole table; `begin_again` puts it back into its box."""
    folder: Path = tmp_path_factory.mktemp("box")
    switch = Crs812Process(folder / "switch", **boxed(folder)).start()
    way = Way(switch)
    yield Workdir(folder / "desk", switch, THERE)
    way.close()
    stop_all([switch])


def ends(workdir: Workdir) -> None:
    """The next run does the rest."""
    workdir.emulator.control({"op": "heal"})
    before = workdir.failed_logins()
    code, text = workdir.run()
    assert code == 0, text
    workdir.is_ready()
    # Our own user is tried once, where it may have come to be.
    assert workdir.failed_logins() - before <= 1


def named(fault: dict[str, Any]) -> str:
    where = STEPS[fault["after"]] if "on" in fault else fault["match"]
    return f"{fault['after']}{where.replace('/', '-')}"


def test_what_is_written_on_the_way(workdir: Workdir) -> None:
    """Else the tables below would leave something out."""
    workdir.begin_again()
    assert workdir.run()[0] == 0
    assert tuple(workdir.writes()) == STEPS
    taken = [line for line in workdir.log() if line.get("command") == "/safe-mode/release"]
    assert len(taken) == SAFE_MODES
    workdir.is_ready()


def turn(first: int, word: str = "", **fate: bool) -> list[ParameterSet]:
    """Every place; in the first tier each has one of the four faults below, in turn."""
    places = [{**where, **fate} for where in (*WRITES, *RELEASES)]
    return sampled(places, FAULTS, first, lambda where: named(where) + word)


@pytest.mark.parametrize("where", turn(0, "-executed", executed=True) + turn(1, "-lost", executed=False))
def test_the_connection_drops(workdir: Workdir, where: dict[str, Any]) -> None:
    workdir.begin_again()
    workdir.emulator.control({"op": "fault", "kind": "drop", **where})
    code, text = workdir.run()
    assert code == 1
    assert "closed by the switch" in text.splitlines()[-1]
    ends(workdir)


@pytest.mark.parametrize("where", turn(2))
def test_the_switch_refuses(workdir: Workdir, where: dict[str, Any]) -> None:
    workdir.begin_again()
    workdir.emulator.control({"op": "fault", "kind": "trap", "message": "failure: bad day", **where})
    code, text = workdir.run()
    if where == WRITES[STEPS.index("/user/set")]:
        # The one refusal that a contact goes on after: admin gets a new password instead (test_bootstrap_refused.py).
        (kept,) = workdir.folder.glob("*.admin.password")
        kept.unlink()
        assert code == 2
        assert "admin stays enabled: the switch refuses to disable it (failure: bad day)" in text
        return
    assert code == 1
    assert text.splitlines()[-1].startswith("Error: crs812: failure: bad day")
    ends(workdir)


@pytest.mark.parametrize("where", turn(3))
def test_killed_after(workdir: Workdir, where: dict[str, Any]) -> None:
    """The sentence was carried out and its answer never comes; then SIGKILL."""
    killed(workdir, {"kind": "mute", **where})
    ends(workdir)


@pytest.mark.parametrize("where", sampled([WRITES[0], WRITES[3], WRITES[5], WRITES[7]], 4, 2, named))
def test_killed_before(workdir: Workdir, where: dict[str, Any]) -> None:
    """The sentence was never carried out: what was done here before it (files, safe mode) is all there is."""
    killed(workdir, {"kind": "hang", **where})
    ends(workdir)


def test_a_dead_session_that_lingers_is_waited_for(workdir: Workdir) -> None:
    killed(workdir, {"kind": "hang", **WRITES[7]}, unroll_delay=2)
    ends(workdir)


def killed(workdir: Workdir, fault: dict[str, Any], unroll_delay: float = 0) -> None:
    workdir.begin_again()
    workdir.emulator.control({"op": "unroll_delay", "seconds": unroll_delay})
    workdir.emulator.control({"op": "fault", **fault})
    process = workdir.start()
    workdir.until(lambda: any(line["result"].startswith("fault: ") for line in workdir.log()), process)
    process.kill()
    text, _ = process.communicate()
    workdir.keeps_quiet(text)

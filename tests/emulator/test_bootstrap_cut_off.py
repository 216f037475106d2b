"""First contact that is cut off anywhere: the next run ends it, and nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.emulator.bootstrap_runs import THERE, Desk, Way, boxed
from tests.emulator.peer import Crs812Process, stop_all
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
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One switch for the whole table; `begin_again` puts it back into its box."""
    folder: Path = tmp_path_factory.mktemp("box")
    switch = Crs812Process(folder / "switch", **boxed(folder)).start()
    way = Way(switch)
    yield Desk(folder / "desk", switch, THERE)
    way.close()
    stop_all([switch])


def ends(desk: Desk) -> None:
    """The next run does the rest."""
    desk.emulator.control({"op": "heal"})
    before = desk.failed_logins()
    code, text = desk.run()
    assert code == 0, text
    desk.is_ready()
    # Our own user is tried once, where it may have come to be.
    assert desk.failed_logins() - before <= 1


def named(fault: dict[str, Any]) -> str:
    where = STEPS[fault["after"]] if "on" in fault else fault["match"]
    return f"{fault['after']}{where.replace('/', '-')}"


def test_what_is_written_on_the_way(desk: Desk) -> None:
    """Else the tables below would leave something out."""
    desk.begin_again()
    assert desk.run()[0] == 0
    assert tuple(desk.writes()) == STEPS
    taken = [line for line in desk.log() if line.get("command") == "/safe-mode/release"]
    assert len(taken) == SAFE_MODES
    desk.is_ready()


def turn(first: int, word: str = "", **fate: bool) -> list[ParameterSet]:
    """Every place; in the first tier each has one of the four faults below, in turn."""
    places = [{**where, **fate} for where in (*WRITES, *RELEASES)]
    return sampled(places, FAULTS, first, lambda where: named(where) + word)


@pytest.mark.parametrize("where", turn(0, "-executed", executed=True) + turn(1, "-lost", executed=False))
def test_the_connection_drops(desk: Desk, where: dict[str, Any]) -> None:
    desk.begin_again()
    desk.emulator.control({"op": "fault", "kind": "drop", **where})
    code, text = desk.run()
    assert code == 1
    assert "closed by the switch" in text.splitlines()[-1]
    ends(desk)


@pytest.mark.parametrize("where", turn(2))
def test_the_switch_refuses(desk: Desk, where: dict[str, Any]) -> None:
    desk.begin_again()
    desk.emulator.control({"op": "fault", "kind": "trap", "message": "failure: bad day", **where})
    code, text = desk.run()
    if where == WRITES[STEPS.index("/user/set")]:
        # The one refusal that a contact goes on after: admin gets a new password instead (test_bootstrap_refused.py).
        (kept,) = desk.folder.glob("*.admin.password")
        kept.unlink()
        assert code == 2
        assert "admin stays enabled: the switch refuses to disable it (failure: bad day)" in text
        return
    assert code == 1
    assert text.splitlines()[-1].startswith("Error: crs812: failure: bad day")
    ends(desk)


@pytest.mark.parametrize("where", turn(3))
def test_killed_after(desk: Desk, where: dict[str, Any]) -> None:
    """The sentence was carried out and its answer never comes; then SIGKILL."""
    killed(desk, {"kind": "mute", **where})
    ends(desk)


@pytest.mark.parametrize("where", sampled([WRITES[0], WRITES[3], WRITES[5], WRITES[7]], 4, 2, named))
def test_killed_before(desk: Desk, where: dict[str, Any]) -> None:
    """The sentence was never carried out: what was done here before it (files, safe mode) is all there is."""
    killed(desk, {"kind": "hang", **where})
    ends(desk)


def test_a_dead_session_that_lingers_is_waited_for(desk: Desk) -> None:
    killed(desk, {"kind": "hang", **WRITES[7]}, unroll_delay=2)
    ends(desk)


def killed(desk: Desk, fault: dict[str, Any], unroll_delay: float = 0) -> None:
    desk.begin_again()
    desk.emulator.control({"op": "unroll_delay", "seconds": unroll_delay})
    desk.emulator.control({"op": "fault", **fault})
    process = desk.start()
    desk.until(lambda: any(line["result"].startswith("fault: ") for line in desk.log()), process)
    process.kill()
    text, _ = process.communicate()
    desk.keeps_quiet(text)
